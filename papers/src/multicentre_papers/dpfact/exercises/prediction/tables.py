"""Areas and matches by rank, next to the published ones."""

from __future__ import annotations

from collections.abc import Sequence

from multicentre.estimator.figures import Lines
from multicentre_papers.dpfact import fits, published
from multicentre_papers.dpfact.exercises.prediction.claims import judge
from multicentre_papers.dpfact.exercises.prediction.measure import (
    CP_ALS,
    DEMO,
    METHODS,
    PLAIN,
    PLANTED,
    PRIVATE,
    SPARSE,
    TRIP,
    TRUE_FACTORS,
    TRUE_MEMBERSHIPS,
)
from multicentre_papers.dpfact.plan import Plan
from multicentre_papers.dpfact.samples import MAX_OF_RANK
from multicentre_papers.runner.markdown import NOTHING, markdown, mean_and_spread
from multicentre_papers.runner.section import Row, Section, distinct, mean, pick, skipped

PUBLISHED_METHODS = {
    CP_ALS: published.CP_ALS,
    TRIP: published.TRIP,
    PRIVATE: published.DPFACT,
    PLAIN: published.WITHOUT_L21,
    SPARSE: published.WITHOUT_DP,
}
INTRO = (
    "Memberships of all patients are fitted again to the phenotypes, at their sites; a federated logistic regression "
    "is fitted on 60 % of each site's patients and evaluated on the others. *FMS* is the factor match score to the "
    "planted phenotypes, of those that are matched at ranks below theirs. Private: epsilon 1.2 at delta 1e-4 per "
    "patient, masked sums, no l2,1 (a norm over patients has no place in a private release, so the paper's "
    "third and fourth column have one counterpart)."
)
DEMO_CAPTION = (
    "**MIMIC-III demo**, all its patients pooled: rank {rank}, mean and standard deviation over {n} splits of the same "
    "{patients} patients, of whom {died} died in hospital. A held-out set of {held_out} is too small for a comparison, "
    "as the standard deviation shows."
)


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show areas next to the published ones, of all patients and of the sites that differ most."""
    planted = pick(rows, sample=PLANTED)
    demo = [row for row in pick(rows, sample=DEMO) if not row.get("skipped")]
    blocks = [INTRO, _table(planted), "**Sites with an exclusive phenotype** (Figure 3 (a))", _table_at_home(planted)]
    if demo:
        area_cells = [[method, mean_and_spread(_of(pick(demo, method=method)))] for method in distinct(demo, "method")]
        patients, died = demo[0]["n_patients"], demo[0]["n_died"]
        held_out = round(fits.HELD_OUT * patients)
        caption = DEMO_CAPTION.format(
            rank=MAX_OF_RANK, n=plan.n_splits, patients=patients, died=died, held_out=held_out
        )
        blocks += [caption, markdown(["method", "AUC"], area_cells)]
    figures = {
        "table-4-auc": _curve(planted, "auc", "area under the curve, all patients"),
        "table-4-fms": _curve(planted, "fms", "factor match score to the planted phenotypes"),
        "figure-3a-auc": _curve(planted, "auc_exclusive", "area under the curve, sites with an exclusive phenotype"),
    }
    return Section(blocks + skipped(rows), figures, judge(planted))


def _of(rows: Sequence[Row], name: str = "auc") -> list[float | None]:
    return [row.get(name) for row in rows]


def _table(rows: Sequence[Row]) -> str:
    cells = []
    for rank in sorted(set(distinct(rows, "rank"))):
        for method in (*METHODS, TRUE_FACTORS, TRUE_MEMBERSHIPS):
            method_rows = pick(rows, rank=rank, method=method)
            if not method_rows:
                continue
            printed = published.AUC.get(rank, {}).get(PUBLISHED_METHODS.get(method, ""))
            text = NOTHING if printed is None else f"{printed:.4f}"
            cells.append(
                [str(rank), method, mean_and_spread(_of(method_rows)), mean_and_spread(_of(method_rows, "fms")), text]
            )
    return markdown(["rank", "method", "AUC", "FMS", "*MIMIC-III*: AUC (paper)"], cells)


def _table_at_home(rows: Sequence[Row]) -> str:
    methods = [one for one in distinct(rows, "method") if pick(rows, method=one)[0].get("fms_exclusive") is not None]
    cells = []
    for rank in sorted(set(distinct(rows, "rank"))):
        for method in methods:
            method_rows = pick(rows, rank=rank, method=method)
            if method_rows and method in (TRIP, PLAIN, SPARSE, PRIVATE, TRUE_FACTORS):
                score_texts = (mean_and_spread(_of(method_rows, name)) for name in ("auc_exclusive", "fms_exclusive"))
                cells.append([str(rank), method, *score_texts])
    return markdown(["rank", "method", "AUC at these sites", "match of the exclusive phenotypes"], cells)


def _curve(rows: Sequence[Row], name: str, label: str) -> Lines:
    ranks = sorted(set(distinct(rows, "rank")))
    fitted = [one for one in METHODS if pick(rows, method=one)]
    series = {method: [mean(pick(rows, method=method, rank=rank), name) for rank in ranks] for method in fitted}
    return Lines(label.capitalize(), "Mean over seeds.", "model", "rank", label, ranks, series, {})
