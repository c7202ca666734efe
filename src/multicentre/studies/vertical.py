"""Studies of sites that hold different views of the same patients: who was aligned, and what the other views are worth.

The fit puts its own patients into clusters, so nobody can be held out. All fits are looked at on the same patients:
those who are at every site.
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
from multicentre.consortium.federation import Federation
from multicentre.data import MultiViewData
from multicentre.data.blocks import Block
from multicentre.data.identifiers import IDENTIFIER
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.estimator.figures import Table
from multicentre.federation.errors import DataError, DisclosureWarning, MulticentreError
from multicentre.federation.rounds import Listener
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.policy import Policy
from multicentre.studies.comparison import Comparison, Figures
from multicentre.studies.sites import SiteData

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
    """Patients who are at every site, with their groups where one of the sites knows them."""

    data: MultiViewData
    labels: tuple[str, ...] | None


def compare_views(
    estimator: FederatedEstimator,
    sites: Mapping[str, SiteData],
    *,
    fitted: FederatedEstimator | None = None,
    listener_for: Callable[[str], Listener] | None = None,
) -> Comparison:
    """Compare a fit over all sites' views with one on the views joined at one place, and with each site's own.

    Parameters
    ----------
    estimator : AlignedClusterer
        Its parameters are used.
    sites : mapping from str to SiteData
        Views by site, with labels at one site at least, or at none.
    fitted : AlignedClusterer, optional
        A fit of the estimator over these sites; made anew otherwise.
    listener_for : callable, optional
        From "federated", "pooled" or a site's name to the listener of that fit.

    Returns
    -------
    Comparison
        How well clusters match the labels of the first site that has some, and how far the federation and each site
        alone agree with the pooled fit; the latter without labels too.

    Raises
    ------
    DataError
        Fewer than two patients are at every site.

    Notes
    -----
    A fit that cannot be made is noted with its reason.
    """
    made, notes = cast(AlignedClusterer, clone(estimator)), dict[str, str]()
    listener_for = listener_for or (lambda _: Listener())
    data = {name: _views_of(site) for name, site in sites.items()}

    def fit(who: str, held: Mapping[str, MultiViewData]) -> AlignedClusterer | None:
        try:
            return _fitted(made, held, listener_for(who))
        except MulticentreError as error:
            notes[who] = f"{error.where}: {error.what}" if error.where else error.what
        except np.linalg.LinAlgError:
            notes[who] = "the equations of the fit have no solution"
        return None

    federated = cast("AlignedClusterer | None", fitted) or fit("federated", data)
    if federated is None:
        return Comparison({}, {}, {}, notes, 0, held_out=False, own_metrics=DESCRIBED)
    exam = _exam(federated, sites)
    pooled = fit("pooled", {"pooled": join_views(federated, data)})
    alone = {name: model for name, held in data.items() if (model := fit(name, {name: held})) is not None}
    return Comparison(
        _figures(federated, exam, pooled),
        {} if pooled is None else _figures(pooled, exam, None),
        {name: _figures(model, exam, pooled) for name, model in alone.items()},
        notes,
        len(exam.data),
        held_out=False,
        own_metrics=DESCRIBED,
    )


def join_views(model: AlignedClusterer, sites: Mapping[str, MultiViewData]) -> MultiViewData:
    """Return the aligned patients of a fit with the views of all sites, in the common order; a simulation's alone.

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
        held = data.take(rows)
        for view in held.views:
            block = Block(held.columns[view], held.kinds[view], held.array(view))
            blocks[f"{site}/{view}"] = block.spread(places, n)
        for place, name in zip(places, _names(held, model.person_key), strict=True):
            names[place] = names[place] or name
    if all(data.identifier is None for data in sites.values()):
        return MultiViewData(blocks, ids=names)
    return MultiViewData(blocks).with_identifier({model.person_key: names})


def with_key(model: FederatedEstimator, key: PseudonymKey | None) -> AlignedClusterer:
    """Return a fit that finds its patients under the study's key; under that of a simulation where there is none."""
    aligned = cast(AlignedClusterer, model)
    return aligned if key is None else aligned.hold_key(key)


def show_alignment(found: AlignedClusterer, least: int) -> Table:
    """Return a table of the patients of each site, and of those who were aligned.

    Parameters
    ----------
    found : AlignedClusterer
        A fit.
    least : int
        Smaller counts of records that were left out are told as a bound. Patients who are not aligned are what is left
        of two counts beside it, and told as they are.
    """
    counts = found.alignment_counts_

    def shown(count: int) -> str | float:
        return f"<{least}" if 0 < count < least else float(count)

    rows: list[list[str | float | None]] = [
        [site, n, counts["aligned"][site], n - counts["aligned"][site], *map(shown, left_out)]
        for site, n in counts["at_site"].items()
        for left_out in [(counts["missing"][site], counts["repeated"][site])]
    ]
    column = "" if found.person_key == IDENTIFIER else f" ({found.person_key})"
    whom = "patients of any site" if found.incomplete else "patients whom every site has"
    return Table(
        "Alignment",
        f"Sites hold different views of the same patients. {len(found.pseudonyms_)} patients were aligned by keyed "
        f"pseudonyms of their identifiers{column}: {whom}.",
        "data",
        ["site", "patients", "aligned", "not aligned", "records without identifier", "repeated records"],
        rows,
    )


def _fitted(estimator: AlignedClusterer, data: Mapping[str, MultiViewData], listener: Listener) -> AlignedClusterer:
    unbound = Policy(min_patients=1, relations="dense")
    with (
        warnings.catch_warnings(),
        Federation.in_process(
            data, policy=unbound, secure_sum=False, study="comparison", listener=listener
        ) as federation,
    ):
        warnings.simplefilter("ignore", DisclosureWarning)
        return cast(AlignedClusterer, clone(estimator)).fit(federation)


def _exam(federated: AlignedClusterer, sites: Mapping[str, SiteData]) -> _Exam:
    found = {name: _first_rows(federated, _views_of(site)) for name, site in sites.items()}
    everywhere = np.arange(len(federated.pseudonyms_))
    for _, places in found.values():
        everywhere = np.intersect1d(everywhere, places)
    if len(everywhere) < 2:
        raise DataError(f"{len(everywhere)} patients are at every site", where="comparison")
    name = next((name for name, site in sites.items() if site.labels is not None), next(iter(sites)))
    rows, places = found[name]
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
