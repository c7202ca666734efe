"""Tables 1 and 2 on repeated splits that all methods share, and one named method against every other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from multicentre.data.survival import SurvivalData
from multicentre_papers.fedsurvboost.contenders import BLEND, CHOSEN, COX, HAZARD, RSF, STACK, Contender, contenders
from multicentre_papers.fedsurvboost.fits import Bench
from multicentre_papers.fedsurvboost.plan import Plan
from multicentre_papers.fedsurvboost.samples import available
from multicentre_papers.fedsurvboost.splits import at_most, hold_out, share_out
from multicentre_papers.runner.markdown import NOTHING, markdown, mean_and_spread
from multicentre_papers.runner.section import (
    Claim,
    Exercise,
    FitCallback,
    PairedDifference,
    Row,
    Section,
    compare,
    distinct,
    mean,
    paired,
    pick,
    skipped,
    values,
)

EXACT = (COX, RSF, HAZARD, BLEND, STACK, CHOSEN)
# The method that the claims are about. It was chosen on data sets of SurvSet, none of which is in these tables.
NAMED = STACK
# Well below the standard error of a metric on one test split (0.02 in concordance).
TOLERANCE = {"concordance": 0.003, "ibs": 0.001}
# 1 if higher values are better, -1 if lower ones are.
SIGN = {"concordance": 1, "ibs": -1}
# Data sets that the claims are about; others serve as an example.
CLAIMED = ("metabric", "support")


def n_fits(plan: Plan) -> int:
    """Return the number of measured cells, including those of data sets that are not available."""
    cells = sum(_is_measured(one, n, plan) for one in contenders(plan) for n in plan.n_paired_sites)
    return len(_samples(plan)) * plan.n_splits * cells


def _samples(plan: Plan) -> tuple[str, ...]:
    """Return the data sets without SUPPORT with its leaking columns, which a separate exercise covers."""
    return tuple(sample for sample in plan.samples if sample != "support-leaky")


def _is_measured(contender: Contender, n_sites: int, plan: Plan) -> bool:
    """Return True unless the fit is that of the smallest number of sites."""
    return not contender.same_for_any_split or n_sites == min(plan.n_paired_sites)


def run(plan: Plan, progress: FitCallback) -> list[Row]:
    """Measure every method on every split and number of sites."""
    rows: list[Row] = []
    for sample, data in available(_samples(plan)):
        if not isinstance(data, SurvivalData):
            rows.append({"sample": sample, "skipped": data})
            continue
        for split in range(plan.n_splits):
            training, test = hold_out(at_most(data, plan.most_patients), split)
            rows += _measured(plan, sample, split, training, test, progress, len(rows))
    return rows


def _measured(
    plan: Plan, sample: str, split: int, training: SurvivalData, test: SurvivalData, progress: FitCallback, done: int
) -> list[Row]:
    rows: list[Row] = []
    for n_sites in plan.n_paired_sites:
        bench = Bench(share_out(training, n_sites, split), split)
        for contender in contenders(plan):
            if not _is_measured(contender, n_sites, plan):
                continue
            place = {"sample": sample, "split": split, "sites": n_sites, "method": contender.name}
            figures = bench.judge(contender, test)
            rows.append({**place, "group": contender.group, "settings": bench.settings(contender), **figures})
            progress(done + len(rows))
    return rows


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Return two tables per data set, and claims on the named method against the best other one."""
    blocks: list[str] = []
    measured = [row for row in rows if not row.get("skipped")]
    for sample in distinct(measured, "sample"):
        of_sample = pick(measured, sample=sample)
        blocks += [_table(sample, of_sample, plan), _differences(of_sample, plan)]
    claims = [claim for sample in CLAIMED for claim in _claims(sample, pick(measured, sample=sample), plan)]
    return Section([*blocks, *skipped(rows)], claims=claims)


def _table(sample: str, rows: Sequence[Row], plan: Plan) -> str:
    sites = plan.n_paired_sites
    headings = [f"{sample}", *(f"C, {n} sites" for n in sites), *(f"IBS, {n} sites" for n in sites)]
    lines = [
        [method, *(_cell(rows, method, n, name, plan) for name in SIGN for n in sites)]
        for method in distinct(rows, "method")
    ]
    return markdown(headings, lines)


def _cell(rows: Sequence[Row], method: str, n_sites: int, name: str, plan: Plan) -> str:
    cell_rows = cell(rows, method, n_sites, plan)
    return mean_and_spread(values(cell_rows, name)) if cell_rows else NOTHING


def cell(rows: Sequence[Row], method: str, n_sites: int, plan: Plan) -> list[Row]:
    """Return a method's rows at a number of sites; exact methods have the same rows for all numbers."""
    return pick(rows, method=method, sites=min(plan.n_paired_sites) if method in EXACT else n_sites)


def _differences(rows: Sequence[Row], plan: Plan) -> str:
    """Return the paired differences of the named method from every other, with standard errors and wins."""
    headings = [f"{NAMED} against", "sites", "C: gain ± SE", "wins", "IBS: gain ± SE", "wins"]
    lines = []
    for n_sites in plan.n_paired_sites:
        for rival in distinct(rows, "method"):
            if rival == NAMED or (rival in EXACT and n_sites != min(plan.n_paired_sites)):
                continue
            cells = [text for name in SIGN for text in _against(rows, rival, name, n_sites, plan)]
            lines.append([rival, "any" if rival in EXACT else str(n_sites), *cells])
    return markdown(headings, lines)


def _against(rows: Sequence[Row], rival: str, name: str, n_sites: int, plan: Plan) -> tuple[str, str]:
    both = [*cell(rows, NAMED, n_sites, plan), *cell(rows, rival, n_sites, plan)]
    gain, error, n_pairs = gain_of(both, rival, name, ["split"])
    named, other = ({row["split"]: row[name] for row in pick(both, method=method)} for method in (NAMED, rival))
    n_wins = sum(SIGN[name] * (value - other[split]) > 0 for split, value in named.items() if split in other)
    return f"{gain:+.4f} ± {error:.4f}", f"{n_wins} of {n_pairs}"


def gain_of(rows: Sequence[Row], rival: str, name: str, by: Sequence[str]) -> PairedDifference:
    """Return by how much the named method is better than a rival, over paired rows."""
    gain, error, n_pairs = paired(rows, name, NAMED, rival, by=by)
    return PairedDifference(SIGN[name] * gain, error, n_pairs)


def _claims(sample: str, rows: Sequence[Row], plan: Plan) -> Iterator[Claim]:
    for name in SIGN:
        for n_sites in plan.n_paired_sites:
            place = f"{sample}, {n_sites} site{'' if n_sites == 1 else 's'}"
            yield claim_of(
                place, [row for method in distinct(rows, "method") for row in cell(rows, method, n_sites, plan)], name
            )


def claim_of(place: str, rows: Sequence[Row], name: str) -> Claim:
    """Return the claim that the named method is at most the tolerance behind the best method of the other groups."""
    text = f"{place}: {NAMED} is at most {TOLERANCE[name]} behind every method that is not exact in {name}"
    means = {method: SIGN[name] * mean(pick(rows, method=method), name) for method in distinct(rows, "method")}
    rivals = [method for method in means if method not in EXACT]
    if NAMED not in means or not rivals:
        return compare(text, PairedDifference(0.0, 0.0, 0))
    rival = max(rivals, key=means.__getitem__)
    remark = f"best of them {rival}, {SIGN[name] * means[rival]:.4f}"
    return compare(text, gain_of(rows, rival, name, ["split"]), remark, least=-TOLERANCE[name])


PAIRED: Exercise[Plan] = Exercise("paired", "Tables 1 and 2 on shared splits", n_fits, run, show)
