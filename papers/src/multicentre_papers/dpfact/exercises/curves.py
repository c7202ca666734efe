"""Figure 2: root mean squared error by epoch, at the entries above zero and over all cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from multicentre.datasets.labelled import LabelledEvents
from multicentre.errors import DataError, NotConverged
from multicentre.estimator.figures import Figure, Lines
from multicentre.phenotyping.fitted.model import PhenotypeModel
from multicentre_papers.baselines.cp import CPALS, CPSGD
from multicentre_papers.dpfact import fits, published
from multicentre_papers.dpfact.plan import Plan
from multicentre_papers.dpfact.samples import SAMPLES, Sample
from multicentre_papers.runner.markdown import markdown, mean_and_spread
from multicentre_papers.runner.section import (
    Claim,
    Exercise,
    FitCallback,
    Row,
    Section,
    compare,
    distinct,
    mean,
    paired,
    pick,
    skipped,
)

CP_ALS, SGD, TRIP = "CP-ALS (pooled)", "SGD (pooled)", "TRIP"
AS_PUBLISHED, WITH_NOISE = "DPFact as published, no noise", "DPFact as published, noised"
STAT, EASGD = "DPFact, exact sums", "DPFact, elastic averaging"
METHODS = (CP_ALS, SGD, TRIP, AS_PUBLISHED, WITH_NOISE, STAT, EASGD)
# Passes over the entries per epoch of DPFact (tau of the authors' release); SGD gets the same number.
N_PASSES = 2

ERRORS = {"rmse_at_entries": "at the entries above zero", "rmse": "over all cells, divided by the entries"}
INTRO = (
    "Both errors are divided by the number of entries, so that a model that predicts zero everywhere has the same "
    "value of both (*zero*). *Constant* is the error at the entries of the model that predicts the mean entry "
    "everywhere, regardless of the patient. Last epoch; lowest mean of each column in bold. The published noise is "
    "that of the claimed epsilon, shared among the epochs that are run, with an assumed gradient length (L) "
    "of 1, which nothing enforces."
)


def n_fits(plan: Plan) -> int:
    """Return the number of fits."""
    return sum(len(METHODS) * len(plan.seeds) for _ in plan.samples)


def run(plan: Plan, report: FitCallback) -> list[Row]:
    """Fit every method on every data set, and keep both errors of every epoch."""
    rows: list[Row] = []
    done = 0
    for sample in (SAMPLES[name] for name in plan.samples):
        for seed in plan.seeds:
            try:
                labelled = sample.draw(plan, seed)
            except DataError as error:
                rows.append({"sample": sample.name, "skipped": str(error)})
                break
            for method in METHODS:
                rows += _rows_of(sample, labelled, method, plan, seed)
                done += 1
                report(done)
    return rows


def _rows_of(sample: Sample, labelled: LabelledEvents, method: str, plan: Plan, seed: int) -> Iterator[Row]:
    tensor = labelled.tensor
    total, squares = float(tensor.counts.sum()), float((tensor.counts**2).sum())
    place = {"sample": sample.name, "method": method, "seed": seed, "rank": sample.rank(plan)}
    lines = {
        "zero": (squares / tensor.nnz) ** 0.5,
        "constant": max(squares / tensor.nnz - (total / tensor.nnz) ** 2, 0.0) ** 0.5,
    }
    try:
        history = _fit(sample, labelled, method, plan, seed)
    except NotConverged:
        history = []
    for epoch, entry in enumerate(history, start=1):
        yield {**place, "epoch": epoch, "rmse": entry["rmse"], "rmse_at_entries": entry["rmse_at_entries"], **lines}


def _fit(sample: Sample, labelled: LabelledEvents, method: str, plan: Plan, seed: int) -> list[dict[str, Any]]:
    rank, epochs, tensor = sample.rank(plan), sample.epochs(plan), labelled.tensor
    codes, sites, of_paper = tensor.codes, labelled.by_site(), sample.stands_for
    full: dict[str, Any] = {"init": "cooccurrence", "max_iter": epochs, "tol": 0.0, "track_errors": True}
    noise = {
        "epsilon": published.EPSILON[of_paper],
        "delta": published.DELTA,
        "paper_lipschitz": 1.0,
    }
    fit: dict[str, Callable[[], CPALS | CPSGD | PhenotypeModel]] = {
        CP_ALS: lambda: CPALS(rank, max_iter=epochs, tol=0.0, random_state=seed).fit(tensor),
        SGD: lambda: CPSGD(
            rank,
            learning_rate=published.LEARNING_RATE[of_paper],
            max_epochs=N_PASSES * epochs,
            random_state=seed,
        ).fit(tensor),
        TRIP: lambda: fits.fit(fits.trip(rank, codes, seed, len(tensor), epochs, track_errors=True), sites),
        AS_PUBLISHED: lambda: fits.fit(
            fits.as_published(rank, codes, seed, epochs, of_paper, track_errors=True), sites
        ),
        WITH_NOISE: lambda: fits.fit(
            fits.as_published(rank, codes, seed, epochs, of_paper, track_errors=True, **noise), sites
        ),
        STAT: lambda: fits.fit(fits.dpfact(rank, codes, seed, **full), sites),
        EASGD: lambda: fits.fit(fits.dpfact(rank, codes, seed, solver="easgd", sparsity=fits.SPARSITY, **full), sites),
    }
    with fits.quiet():
        history = fit[method]().history_
    return history[N_PASSES - 1 :: N_PASSES] if method == SGD else history


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show the errors at the last epoch, and curves of the means."""
    measured = [row for row in rows if not row.get("skipped")]
    blocks, figures, claims = [INTRO], {}, []
    for name in distinct(measured, "sample"):
        sample_rows = pick(measured, sample=name)
        blocks += [f"**{SAMPLES[name].label}**, rank {sample_rows[0]['rank']}", _table(_last(sample_rows))]
        for error, label in ERRORS.items():
            figures[f"figure-2-{name}-{error.replace('_', '-')}"] = _curve(sample_rows, error, label)
        claims += _judge(name, _last(sample_rows))
    claims += [_untested(row["sample"]) for row in rows if row.get("skipped")]
    return Section(blocks + skipped(rows), figures, claims)


def _untested(name: str) -> Claim:
    claim = (
        f"paper, {name}: DPFact's error is below those of CP-ALS and TRIP, and SGD's below DPFact's (at the entries)"
    )
    return Claim(claim, False, "the data are not available", n_repetitions=0)


def _last(rows: Sequence[Row]) -> list[Row]:
    final: dict[tuple[str, int], Row] = {}
    for row in rows:
        final[row["method"], row["seed"]] = row
    return list(final.values())


def _table(last: Sequence[Row]) -> str:
    methods = distinct(last, "method")
    least = {error: min(methods, key=lambda one: mean(pick(last, method=one), error)) for error in ERRORS}
    cells = []
    for method in methods:
        method_rows = pick(last, method=method)
        texts = {error: mean_and_spread([row[error] for row in method_rows]) for error in ERRORS}
        cells.append([method, *(f"**{text}**" if least[error] == method else text for error, text in texts.items())])
    for line in ("zero", "constant"):
        text = f"{mean(last, line):.3f}"
        cells.append([f"*{line}*", text, text if line == "zero" else "–"])
    return markdown(["method", *(f"error {label}" for label in ERRORS.values())], cells)


def _curve(rows: Sequence[Row], error: str, label: str) -> Figure:
    epochs = sorted(set(distinct(rows, "epoch")))
    series: dict[str, list[float]] = {
        method: [mean(pick(rows, method=method, epoch=epoch), error) for epoch in epochs]
        for method in distinct(rows, "method")
    }
    series["model that predicts zero"] = [mean(rows, "zero")] * len(epochs)
    if error == "rmse_at_entries":
        series["model that predicts the mean entry"] = [mean(rows, "constant")] * len(epochs)
    title, caption = f"Error {label}", "Mean over seeds."
    if error == "rmse":
        series = {name: [math.log10(value) for value in errors] for name, errors in series.items()}
        return Lines(title, caption, "fit", "epoch", "decimal logarithm of the error", epochs, series, {})
    return Lines(title, caption, "fit", "epoch", "root mean squared error", epochs, series, {})


def _judge(name: str, last: Sequence[Row]) -> list[Claim]:
    at = {error: {m: mean(pick(last, method=m), error) for m in distinct(last, "method")} for error in ERRORS}
    entries, cells = at["rmse_at_entries"], at["rmse"]
    if not {CP_ALS, TRIP, SGD, AS_PUBLISHED, STAT} <= set(entries):
        return []
    ours, rivals = entries[AS_PUBLISHED], min(entries[CP_ALS], entries[TRIP])
    whole, zero = cells[AS_PUBLISHED], mean(last, "zero")
    n_seeds = len(distinct(last, "seed"))
    return [
        Claim(
            f"paper, {name}: DPFact's error is below those of CP-ALS and TRIP (at the entries)",
            ours < rivals,
            f"{ours:.3f} against {rivals:.3f}; the first fits only the entries, the others all cells; a constant has "
            f"{mean(last, 'constant'):.3f}",
            n_repetitions=n_seeds,
        ),
        compare(
            f"paper, {name}: SGD's error is below DPFact's (at the entries)",
            paired(last, "rmse_at_entries", AS_PUBLISHED, SGD, by=("rank", "seed")),
            f"{entries[SGD]:.3f} against {ours:.3f}",
        ),
        Claim(
            f"{name}: over all cells DPFact as published is better than the model that predicts zero",
            whole < zero,
            f"{whole:.3f} against {zero:.3f}; CP-ALS {cells[CP_ALS]:.3f}, DPFact by exact sums {cells[STAT]:.3f}",
            n_repetitions=n_seeds,
        ),
    ]


CURVES = Exercise("figure-2", "Figure 2: error by epoch", n_fits, run, show)
