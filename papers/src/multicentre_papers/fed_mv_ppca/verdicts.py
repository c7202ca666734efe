"""Verdicts: claims that the figures confirm or refute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from multicentre_papers.fed_mv_ppca import unmeasured
from multicentre_papers.fed_mv_ppca.aggregate import Summary, find
from multicentre_papers.fed_mv_ppca.methods import HIERARCHICAL, INVARIANT, PAPER, POOLED, PPCA, RIVALS
from multicentre_papers.fed_mv_ppca.selection import SIMULATED_WITH, Choice, mean_by_candidate, picked
from multicentre_papers.fed_mv_ppca.unmeasured import Imputed
from multicentre_papers.runner.verdict import Verdict

# Largest ratio to the error of one centre. The paper claims stability without a figure; 2 % is our reading.
STABLE = 1.02
# Largest ratio to the error of the better auto-encoder. A prototype reached 0.75 to 0.88 at equal steps; the rest is
# room for other seeds.
MARGIN_OVER_RIVALS = 0.92
# Largest distance to the pooled fit in nats per row. In K and G/K the pooled fit sees views that centres lack.
NEAR_POOLED_NATS = {"IID": 0.01, "G": 0.01, "K": 0.3, "G/K": 0.3}
# Largest errors of held-out rows. A prototype reached 0.0098 to 0.0100 on SD, 0.0147 to 0.0149 with the mild shift.
HIGHEST_MAE = {
    "sd": {"IID": 0.0105, "G": 0.0110, "K": 0.0110, "G/K": 0.0110},
    "sd-mild": dict.fromkeys(("IID", "G", "K", "G/K"), 0.016),
}
# Groups are separated completely on SD; with the mild shift a prototype reached 0.83 to 0.84.
LOWEST_ACCURACY = {"sd": 0.9995, "sd-mild": 0.80}
# A prototype reached 0.058 when each view was predicted from the others.
MAX_SHARE_OF_MEAN = {"sd": 0.07}

_UNSTABLE = {
    PAPER: "; the published alternation has no case mix per centre: with groups and views unevenly spread, "
    "the means of the views rest on different patients",
    HIERARCHICAL: "; where a centre holds one group only, its own parameters take in what sets its patients apart",
}
_FEWER_VIEWS = "; the pooled fit also sees the views that centres lack here"


def judge_table(sample: str, lines: list[Summary]) -> list[Verdict]:
    """Judge the claims on the lines of one data set."""
    sample_lines = find(lines, sample=sample)
    verdicts = [_stable(method, sample_lines) for method in PPCA]
    verdicts += list(_against_rivals(sample_lines))
    verdicts += list(_levels(sample, sample_lines))
    verdicts += [_near_pooled(sample_lines), _imputation(sample, sample_lines)]
    fewest = min(line.n_repetitions for line in sample_lines)
    return [
        verdict if verdict.n_repetitions == 0 else replace(verdict, n_repetitions=fewest)
        for verdict in verdicts
        if verdict is not None
    ]


def judge_selection(choices: list[Choice]) -> list[Verdict]:
    """Judge the choice of q by WAIC against the dimension of the simulation, and the fall of the error."""
    picks = picked(choices)
    right = sum(q == SIMULATED_WITH for q in picks)
    mae = {q: error for q, (_, error) in mean_by_candidate(choices).items()}
    verdicts = [
        Verdict(
            f"WAIC picks q = {SIMULATED_WITH} on SD in 9 of 10 repetitions",
            right >= 0.9 * len(picks),
            f"{right} of {len(picks)}; picks {', '.join(map(str, picks))}",
            len(picks),
        )
    ]
    if {4, 5, 7} <= set(mae):
        falls, flat = mae[4] / mae[5], mae[5] / mae[7]
        verdicts.append(
            Verdict(
                "held-out error falls until q = 5 and then hardly: q4/q5 above 2.2, q5/q7 below 1.2",
                falls > 2.2 and flat < 1.2,
                f"q4/q5 {falls:.2f}, q5/q7 {flat:.2f}",
                len(picks),
            )
        )
    return verdicts


def judge_unmeasured(rows: list[Imputed]) -> list[Verdict]:
    """Compare the prediction of a view that a centre never measured with the prediction by the mean."""
    if not rows:
        claim = "protein from mRNA and miRNA beats the mean"
        return [Verdict(claim, False, "the data set breast.TCGA is not at hand", 0)]
    means = unmeasured.mean_by_arrangement(rows)
    n_repetitions = len({row.repetition for row in rows})
    return [
        Verdict(
            f"protein from mRNA and miRNA beats the mean, q = {q}, {method}, {centres}",
            figures["imputation_mae"] < figures["mean_imputation_mae"],
            f"{figures['imputation_mae']:.4f} against {figures['mean_imputation_mae']:.4f}{_excuse(figures)}",
            n_repetitions,
        )
        for (q, method, centres), figures in means.items()
    ]


def judge_clinical() -> list[Verdict]:
    """Return the claims on the paper's clinical data, which need an agreement with its holders."""
    reason = "the data of ADNI need an agreement with their holders"
    return [
        Verdict("Table 2 on ADNI: errors and accuracy of Fed-mv-PPCA", False, reason, 0),
        Verdict("Figures 4 and 5 on ADNI: a centre's missing modality", False, reason, 0),
    ]


def _excuse(figures: dict[str, float]) -> str:
    if figures["imputation_mae"] < figures["mean_imputation_mae"]:
        return ""
    return (
        "; miRNA differs between the centre without protein and the others, a latent dimension goes to that "
        "difference, and the protein loadings on it rest on hardly any variation within the other centres"
    )


def _stable(method: str, lines: list[Summary]) -> Verdict | None:
    method_lines = find(lines, method=method)
    one_centre = find(method_lines, scenario="IID", n_sites=1)
    several_centres = [line for line in method_lines if line.n_sites > 1]
    if not one_centre or not several_centres:
        return None
    ratios = {_place(line): line.mean["mae_test"] / one_centre[0].mean["mae_test"] for line in several_centres}
    worst = max(ratios, key=lambda place: ratios[place])
    reached = ratios[worst] <= STABLE
    why = "" if reached else _UNSTABLE.get(method, "")
    return Verdict(
        f"{method}: MAE test within 2 % of one centre in every scenario",
        reached,
        f"worst {worst}: {ratios[worst]:.3f} times{why}",
    )


def _against_rivals(lines: list[Summary]) -> Iterator[Verdict]:
    cells = {_place(line) for line in lines if line.method in RIVALS}
    if not cells:
        yield Verdict(f"{PAPER}: ahead of VAE and mc-VAE", False, "torch is not installed", 0)
        return
    ratios, gains = {}, {}
    for place in cells:
        cell_lines = [line for line in lines if _place(line) == place]
        ours = [line for line in cell_lines if line.method == PAPER]
        theirs = [line for line in cell_lines if line.method in RIVALS]
        if ours and theirs:
            ratios[place] = ours[0].mean["mae_test"] / min(line.mean["mae_test"] for line in theirs)
            gains[place] = ours[0].mean["accuracy"] - max(line.mean["accuracy"] for line in theirs)
    worst = max(ratios, key=lambda place: ratios[place])
    yield Verdict(
        f"{PAPER}: MAE test at most {MARGIN_OVER_RIVALS} times that of the better auto-encoder, everywhere",
        ratios[worst] <= MARGIN_OVER_RIVALS,
        f"worst {worst}: {ratios[worst]:.2f} times",
    )
    least = min(gains, key=lambda place: gains[place])
    reached = gains[least] >= 0
    why = "" if reached else "; a linear auto-encoder's best latent space is that of probabilistic PCA"
    yield Verdict(
        f"{PAPER}: accuracy in latent space at least that of the better auto-encoder, everywhere",
        reached,
        f"worst {least}: {gains[least]:+.4f}{why}",
    )


def _levels(sample: str, lines: list[Summary]) -> Iterator[Verdict]:
    if sample not in HIGHEST_MAE:
        return
    for method in PPCA:
        method_lines = find(lines, method=method)
        if not method_lines:
            continue
        excess = {_place(line): line.mean["mae_test"] - HIGHEST_MAE[sample][line.scenario] for line in method_lines}
        worst = max(method_lines, key=lambda line: excess[_place(line)])
        yield Verdict(
            f"{method}: MAE test at most {HIGHEST_MAE[sample][worst.scenario]} in {worst.scenario}, "
            "similarly elsewhere",
            excess[_place(worst)] <= 0,
            f"nearest to its level or furthest above it {_place(worst)}: {worst.mean['mae_test']:.4f}",
        )
        lowest = min(method_lines, key=lambda line: line.mean["accuracy"])
        yield Verdict(
            f"{method}: accuracy in latent space at least {LOWEST_ACCURACY[sample]}",
            lowest.mean["accuracy"] >= LOWEST_ACCURACY[sample],
            f"lowest {_place(lowest)}: {lowest.mean['accuracy']:.4f}",
        )


def _near_pooled(lines: list[Summary]) -> Verdict | None:
    gaps, excess = {}, {}
    for line in find(lines, method=INVARIANT):
        ceiling = find(lines, method=POOLED, scenario=line.scenario, n_sites=line.n_sites)
        if ceiling:
            gap = ceiling[0].mean["log_likelihood"] - line.mean["log_likelihood"]
            gaps[_place(line)], excess[_place(line)] = gap, gap - NEAR_POOLED_NATS[line.scenario]
    if not gaps:
        return None
    worst = max(excess, key=lambda place: excess[place])
    reached = excess[worst] <= 0
    why = _FEWER_VIEWS if not reached and "K" in worst else ""
    return Verdict(
        f"{INVARIANT}: held-out log-likelihood within 0.01 nat a row of the pooled fit in IID and G, 0.3 in K and G/K",
        reached,
        f"nearest to its level or furthest beyond it {worst}: {gaps[worst]:.4f} nats{why}",
    )


def _imputation(sample: str, lines: list[Summary]) -> Verdict | None:
    invariant_lines = find(lines, method=INVARIANT)
    if not invariant_lines:
        return None
    share = MAX_SHARE_OF_MEAN.get(sample, 1.0)
    ratios = {_place(line): line.mean["imputation_mae"] / line.mean["mean_imputation_mae"] for line in invariant_lines}
    worst = max(ratios, key=lambda place: ratios[place])
    return Verdict(
        f"{INVARIANT}: a view predicted from the others errs less than {share:g} times the mean's error",
        ratios[worst] < share,
        f"worst {worst}: {ratios[worst]:.3f} times",
    )


def _place(line: Summary) -> str:
    return f"{line.scenario} with {line.n_sites}"
