"""Studies of sites with different views of the same patients: alignment table and comparison of fits.

The fit clusters its own patients, so none can be held out. All fits are assessed on the same patients: those who are at
every site.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from multicentre.clustering.aligned import AlignedClusterer
from multicentre.clustering.metrics import adjusted_rand
from multicentre.core.rounds import Listener
from multicentre.data import MultiViewData
from multicentre.data.blocks import Block
from multicentre.data.identifiers import IDENTIFIER
from multicentre.errors import DataError, DisclosureWarning, MulticentreError
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Table
from multicentre.federation import Federation
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.policy import UNLIMITED
from multicentre.studies.comparison_result import Comparison, Figures
from multicentre.studies.site_patients import SiteData

AGREEMENT = "agreement"
DESCRIBED: Mapping[str, Metric] = {
    AGREEMENT: Metric(
        "Agreement with the pooled fit",
        "higher",
        "",
        "Pairs of patients that the clusters of both fits agree on, beyond chance (adjusted Rand index)",
    )
}
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class _Exam:
    """Patients who are at every site, with their groups if one of the sites has them."""

    data: MultiViewData
    labels: tuple[str, ...] | None


def compare_views(
    estimator: FederatedEstimator,
    sites: Mapping[str, SiteData],
    *,
    fitted: FederatedEstimator | None = None,
    listener_for: Callable[[str], Listener] | None = None,
) -> Comparison:
    """Compare a fit over all sites' views with a fit on the joined views and with a fit of each site.

    Parameters
    ----------
    estimator : AlignedClusterer
        Its parameters are used.
    sites : mapping from str to SiteData
        Views by site, with labels at one site at least, or at none.
    fitted : AlignedClusterer, optional
        A fit of the estimator over these sites; by default, a new fit.
    listener_for : callable, optional
        Takes "federated", "pooled" or a site's name; returns the listener of that fit.

    Returns
    -------
    Comparison
        Agreement of the clusters with the labels of the first site with labels, and agreement of the federated and the
        single-site fits with the pooled fit; the latter does not need labels.

    Raises
    ------
    DataError
        Fewer than two patients are at every site.

    Notes
    -----
    A failed fit is noted with its reason.
    """
    unfitted, notes = cast(AlignedClusterer, clone(estimator)), dict[str, str]()
    listener_for = listener_for or (lambda _: Listener())
    data = {name: _views_of(site) for name, site in sites.items()}

    def fit(name: str, site_views: Mapping[str, MultiViewData]) -> AlignedClusterer | None:
        try:
            return _fit(unfitted, site_views, listener_for(name))
        except MulticentreError as error:
            notes[name] = f"{error.where}: {error.what}" if error.where else error.what
        except np.linalg.LinAlgError:
            notes[name] = "the equations of the fit have no solution"
        return None

    federated = cast("AlignedClusterer | None", fitted) or fit("federated", data)
    if federated is None:
        return Comparison({}, {}, {}, notes, 0, held_out=False, comparison_metrics=DESCRIBED)
    exam = _exam(federated, sites)
    pooled = fit("pooled", {"pooled": join_views(federated, data)})
    alone = {name: model for name, views in data.items() if (model := fit(name, {name: views})) is not None}
    return Comparison(
        _figures(federated, exam, pooled),
        {} if pooled is None else _figures(pooled, exam, None),
        {name: _figures(model, exam, pooled) for name, model in alone.items()},
        notes,
        len(exam.data),
        held_out=False,
        comparison_metrics=DESCRIBED,
    )


def join_views(model: AlignedClusterer, sites: Mapping[str, MultiViewData]) -> MultiViewData:
    """Return the aligned patients of a fit with the views of all sites, in the common order (simulations only).

    Parameters
    ----------
    model : AlignedClusterer
        A fit over the sites.
    sites : mapping from str to MultiViewData

    Returns
    -------
    MultiViewData
        Views are called ``<site>/<view>``; patients whom a site lacks lack its views.
    """
    n, blocks = len(model.pseudonyms_), dict[str, Block]()
    names: list[str | None] = [None] * n
    for site, data in sites.items():
        rows, places = _first_rows(model, data)
        aligned = data.take(rows)
        for view in aligned.views:
            block = Block(aligned.columns[view], aligned.kinds[view], aligned.array(view))
            blocks[f"{site}/{view}"] = block.spread(places, n)
        for place, name in zip(places, _names(aligned, model.person_key), strict=True):
            names[place] = names[place] or name
    if all(data.identifier is None for data in sites.values()):
        return MultiViewData(blocks, ids=names)
    return MultiViewData(blocks).with_identifier({model.person_key: names})


def with_key(model: FederatedEstimator, key: PseudonymKey | None) -> AlignedClusterer:
    """Return a fit with the study's key for its patients' pseudonyms; without a key, that of a simulation is used."""
    aligned = cast(AlignedClusterer, model)
    return aligned if key is None else aligned.hold_key(key)


def show_alignment(model: AlignedClusterer, least: int) -> Table:
    """Return a table of the patients of each site, and of the aligned patients.

    Parameters
    ----------
    model : AlignedClusterer
        A fit.
    least : int
        Smaller counts of left-out records are shown as a bound. Counts of patients who are not aligned are exact, as
        they are the difference of two other counts in the table.
    """
    counts = model.alignment_counts_

    def as_cell(count: int) -> str | float:
        return f"<{least}" if 0 < count < least else float(count)

    rows: list[list[str | float | None]] = [
        [site, n, counts["aligned"][site], n - counts["aligned"][site], *map(as_cell, left_out)]
        for site, n in counts["at_site"].items()
        for left_out in [(counts["missing"][site], counts["repeated"][site])]
    ]
    column = "" if model.person_key == IDENTIFIER else f" ({model.person_key})"
    included = "patients of any site" if model.incomplete else "patients who are at every site"
    return Table(
        "Alignment",
        f"Sites hold different views of the same patients. {len(model.pseudonyms_)} patients were aligned by keyed "
        f"pseudonyms of their identifiers{column}: {included}.",
        "data",
        ["site", "patients", "aligned", "not aligned", "records without identifier", "repeated records"],
        rows,
    )


def _fit(estimator: AlignedClusterer, data: Mapping[str, MultiViewData], listener: Listener) -> AlignedClusterer:
    with (
        warnings.catch_warnings(),
        Federation.in_process(
            data, policy=UNLIMITED, secure_sum=False, study="comparison", listener=listener
        ) as federation,
    ):
        warnings.simplefilter("ignore", DisclosureWarning)
        return cast(AlignedClusterer, clone(estimator)).fit(federation)


def _exam(federated: AlignedClusterer, sites: Mapping[str, SiteData]) -> _Exam:
    aligned = {name: _first_rows(federated, _views_of(site)) for name, site in sites.items()}
    everywhere = np.arange(len(federated.pseudonyms_))
    for _, places in aligned.values():
        everywhere = np.intersect1d(everywhere, places)
    if len(everywhere) < 2:
        raise DataError(
            f"at least 2 patients must be at every site; got {len(everywhere)}",
            where="comparison",
            hint="Check that identifiers are recorded in the same way at all sites.",
        )
    name = next((name for name, site in sites.items() if site.labels is not None), next(iter(sites)))
    rows, places = aligned[name]
    rows = rows[np.isin(places, everywhere)]
    labels = sites[name].labels
    return _Exam(_views_of(sites[name]).take(rows), None if labels is None else tuple(labels[row] for row in rows))


def _figures(model: AlignedClusterer, exam: _Exam, pooled: AlignedClusterer | None) -> Figures:
    metrics = dict(model.assess(exam.data, exam.labels))
    if pooled is not None:
        metrics[AGREEMENT] = adjusted_rand(pooled.labels_for(exam.data), model.labels_for(exam.data))
    return metrics


def _views_of(site: SiteData) -> MultiViewData:
    return cast(MultiViewData, site.data)


def _first_rows(model: AlignedClusterer, data: MultiViewData) -> tuple[Rows, Rows]:
    """Return the rows of the aligned patients, each once and in the common order, and their places in it."""
    at = model.places_for(data)
    places, rows = np.unique(at, return_index=True)
    return rows[places >= 0], places[places >= 0]


def _names(data: MultiViewData, person_key: str) -> list[str | None]:
    if data.identifier is not None:
        return data.identifier.column(person_key)
    return [] if data.ids is None else [str(one) for one in data.ids]
