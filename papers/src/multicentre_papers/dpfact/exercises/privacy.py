"""Figure 3 (b): how much of the phenotypes survives the noise, by epsilon."""

from __future__ import annotations

from collections.abc import Sequence

from multicentre.estimator.figures import Lines
from multicentre.phenotyping.scores import factor_match_score, null_match_score, permuted_match_score
from multicentre_papers.dpfact import fits
from multicentre_papers.dpfact.plan import Plan
from multicentre_papers.dpfact.samples import draw_planted
from multicentre_papers.runner.markdown import NOTHING, markdown, mean_and_spread
from multicentre_papers.runner.section import Claim, Exercise, FitCallback, Row, Section, distinct, mean, pick, skipped

# Below one over the number of patients of the planted data.
DELTA = 1e-5
NO_NOISE = "no noise"
MASKED, PER_SITE = "noise on masked sums", "noise of each site"
DESCENT = "descent over patients, masked"
NULLS = {"null": "codes shuffled", "null_dense": "dense random factors"}
INTRO = (
    f"(epsilon, {DELTA:g})-differential privacy for all that a patient has. Matches of B and C to the planted "
    "phenotypes and, as in the paper, to those of the fit without noise; mean and standard deviation over seeds. The "
    "sums of least squares are noised once where they are masked, and by each site otherwise. Memberships never leave "
    "a site and are left out of the match."
)


def _mechanisms(plan: Plan) -> tuple[str, ...]:
    return (MASKED, PER_SITE, DESCENT) if plan.all_mechanisms else (MASKED, PER_SITE)


def n_fits(plan: Plan) -> int:
    """Return the number of fits."""
    return len(plan.seeds) * (1 + len(plan.epsilons) * len(_mechanisms(plan)))


def run(plan: Plan, report: FitCallback) -> list[Row]:
    """Fit without noise and at every epsilon."""
    rows: list[Row] = [] if fits.HAS_NOISE else [{"sample": "private fits", "skipped": fits.NO_NOISE}]
    for seed in plan.seeds if fits.HAS_NOISE else ():
        drawn = draw_planted(plan, seed, plan.n_private_patients)
        sites, codes, truth = drawn.by_site(), drawn.tensor.codes, drawn.truth.factors
        sizes = [len(names) for names in codes.values()]
        lines = {"null": permuted_match_score(truth), "null_dense": null_match_score(sizes, plan.rank)}
        free = fits.fit(fits.dpfact(plan.rank, codes, seed, max_iter=plan.max_iter), sites)
        exact = {"match": factor_match_score(truth, free.factors_).score, "match_to_free": 1.0}
        rows.append({"mechanism": NO_NOISE, "epsilon": None, "seed": seed, **exact, **lines})
        report(len(rows))
        for mechanism in _mechanisms(plan):
            for epsilon in plan.epsilons:
                model = fits.dpfact(
                    plan.rank,
                    codes,
                    seed,
                    epsilon=epsilon,
                    delta=DELTA,
                    solver="psgd" if mechanism == DESCENT else "stat",
                    mechanism="bolt-on" if mechanism == DESCENT else "dp-als",
                    public_site_size=plan.n_private_patients // len(sites),
                )
                fits.fit(model, sites, secure_sum=mechanism != PER_SITE)
                figures = {
                    "match": factor_match_score(truth, model.factors_).score,
                    "match_to_free": factor_match_score(free.factors_, model.factors_).score,
                    "signal": model.noise_signal_,
                }
                rows.append({"mechanism": mechanism, "epsilon": epsilon, "seed": seed, **figures, **lines})
                report(len(rows))
    return rows


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show matches by epsilon next to the null lines."""
    if skipped(rows):
        untested = Claim(
            "paper: the match to the fit without noise rises with epsilon and comes near 1",
            False,
            "no private fit was run",
            n_repetitions=0,
        )
        return Section(skipped(rows), claims=[untested])
    cells = []
    for mechanism in distinct(rows, "mechanism"):
        mechanism_rows = pick(rows, mechanism=mechanism)
        for epsilon in distinct(mechanism_rows, "epsilon") or [None]:
            here = pick(mechanism_rows, epsilon=epsilon)
            matches = [mean_and_spread([row[name] for row in here]) for name in ("match", "match_to_free")]
            signal = mean_and_spread([row.get("signal") for row in here], 0)
            cells.append([mechanism, NOTHING if epsilon is None else f"{epsilon:g}", *matches, signal])
    cells += [[f"*{label}*", NOTHING, f"{mean(rows, name):.3f}", NOTHING, NOTHING] for name, label in NULLS.items()]
    headings = ["mechanism", "epsilon", "match to the truth", "match to no noise", "patients over noise"]
    return Section([INTRO, markdown(headings, cells)], {"figure-3b-match": _curve(rows)}, _judge(rows, plan))


def _curve(rows: Sequence[Row]) -> Lines:
    epsilons = sorted(set(distinct(rows, "epsilon")))
    noised = [one for one in distinct(rows, "mechanism") if one != NO_NOISE]
    series = {
        mechanism: [mean(pick(rows, mechanism=mechanism, epsilon=one), "match") for one in epsilons]
        for mechanism in noised
    }
    series[NO_NOISE] = [mean(pick(rows, mechanism=NO_NOISE), "match")] * len(epsilons)
    series |= {label: [mean(rows, name)] * len(epsilons) for name, label in NULLS.items()}
    caption = "Mean over seeds; matches to the planted phenotypes."
    return Lines("Match by epsilon", caption, "model", "epsilon", "factor match score", epsilons, series, {})


def _judge(rows: Sequence[Row], plan: Plan) -> list[Claim]:
    epsilons = sorted(plan.epsilons)
    match = {one: mean(pick(rows, mechanism=MASKED, epsilon=one), "match") for one in epsilons}
    to_free = {one: mean(pick(rows, mechanism=MASKED, epsilon=one), "match_to_free") for one in epsilons}
    free, null = mean(pick(rows, mechanism=NO_NOISE), "match"), mean(rows, "null_dense")
    lowest, highest = epsilons[0], epsilons[-1]
    n_seeds = len(distinct(rows, "seed"))
    return [
        Claim(
            "paper: the match to the fit without noise rises with epsilon",
            to_free[highest] > to_free[lowest],
            ", ".join(f"{to_free[one]:.3f} at {one:g}" for one in epsilons),
            n_repetitions=n_seeds,
        ),
        Claim(
            "paper: and comes near 1 (0.9 or more at the largest epsilon)",
            to_free[highest] >= 0.9,
            f"{to_free[highest]:.3f}; least squares has several optima, and a noised start can lead to another",
            n_repetitions=n_seeds,
        ),
        Claim(
            f"at epsilon {lowest:g} per patient the match stays at 0.83 or more ({plan.n_private_patients:,} patients)",
            match[lowest] >= 0.83,
            f"{match[lowest]:.3f} against {free:.3f} without noise and {null:.3f} of random factors"
            + ("" if match[lowest] >= 0.83 else "; noise is for the sum, and these patients are few for it"),
            n_repetitions=n_seeds,
        ),
    ]


PRIVACY = Exercise("figure-3b", "Figure 3 (b): phenotypes by epsilon", n_fits, run, show)
