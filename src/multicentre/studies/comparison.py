"""Comparison of a method fitted federated, on pooled rows, and at each site alone.

Only a simulation can pool rows. The fits run in temporary federations without ledgers. For sites with different views
of the same patients, see :mod:`multicentre.studies.vertical`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.rounds import Listener
from multicentre.data.concatenate import concatenate
from multicentre.data.identifiers import Identifiers
from multicentre.data.kinds import PatientData
from multicentre.errors import DataError, MulticentreError
from multicentre.estimator.base import FederatedEstimator
from multicentre.federation import Federation
from multicentre.privacy.identifier_normalisation import normalise_identifier
from multicentre.privacy.policy import UNLIMITED
from multicentre.studies.comparison_result import Comparison, Figures
from multicentre.studies.site_patients import SiteData

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class _Exam:
    """Held-out patients for the assessment of every fit, and training patients for figures on groups."""

    data: PatientData
    labels: list[str] | None
    training: PatientData
    training_labels: list[str] | None


def compare(
    estimator: FederatedEstimator,
    sites: Mapping[str, SiteData],
    *,
    holdout: float = 0.25,
    seed: int = 0,
    listener_for: Callable[[str], Listener] | None = None,
    fitted: FederatedEstimator | None = None,
) -> Comparison:
    """Fit a method federated, pooled and at each site alone, and assess all on the same held-out patients.

    Parameters
    ----------
    estimator : FederatedEstimator
        Its parameters are used; the object itself is not changed.
    sites : mapping from str to SiteData
        Data by site, with labels at every site or at none.
    holdout : float, default 0.25
        Share of every site's patients (and of each of their groups) to hold out, between 0 and 1.
    seed : int, default 0
        Seed of the choice of held-out patients.
    listener_for : callable, optional
        Takes "federated", "pooled" or a site's name; returns the listener of that fit.
    fitted : FederatedEstimator, optional
        A fit over these sites, used as the federated fit if the method cannot hold patients out.

    Raises
    ------
    DataError
        There are too few patients to hold any out.

    Notes
    -----
    The pooled fit is of the same model: if the model has strata or effects of sites, the pooled rows keep their site,
    and are fitted without masks and without a minimum of patients.

    A failed fit, such as that of a site with too few patients, is noted with its reason. Disclosure rules do not apply
    to a site's own analysis, so no minimum number of patients is required here. Metrics that classify groups are
    trained for every fit on the training patients of all sites, so that only the models are compared; single sites
    therefore have more data than in practice. If all sites have identifiers, either all or none of a person's records
    are held out. A site that lacks a view fits fewer columns, so only its metrics of single views are kept. A site that
    lacks codes is assessed on the same held-out patients as the others, including these codes.

    A method on different views of the same patients holds out no patients, see
    :func:`multicentre.studies.vertical.compare_views`.
    """
    from multicentre.validation.cross_validation import unfitted

    if estimator.aligned_by is not None:
        from multicentre.studies.vertical import compare_views

        return compare_views(estimator, sites, fitted=fitted, listener_for=listener_for)
    training, held_out = _split_sites(sites, holdout, np.random.default_rng(seed))
    train = {name: site.data for name, site in training.items()}
    exam = _Exam(_stack_sites(held_out), _labels(held_out), _stack_sites(training), _labels(training))
    listener_for = listener_for or (lambda _: Listener())
    notes: dict[str, str] = {}

    def assess(fit: str, data: Mapping[str, PatientData]) -> Figures:
        try:
            return _assess(unfitted(estimator), data, exam, listener_for(fit))
        except MulticentreError as error:
            notes[fit] = f"{error.where}: {error.what}" if error.where else error.what
            able = {name: site_data for name, site_data in data.items() if name not in error.refusals}
            if 0 < len(able) < len(data):  # a site whose few records permit no fit does not end that of the others
                without = f"fitted without {', '.join(sorted(data.keys() - able.keys()))} ({notes.pop(fit)})"
                figures = assess(fit, able)
                notes[fit] = "; ".join([without, *([notes[fit]] if fit in notes else [])])
                return figures
        except np.linalg.LinAlgError:
            notes[fit] = "the equations of the fit have no solution"
        return {}

    federated = assess("federated", train)
    pooled = assess("pooled", train if estimator.models_sites else {"pooled": exam.training})
    alone = {}
    for name, data in train.items():
        metrics = assess(name, {name: data})
        missing_parts = [part for part in exam.data.parts if part not in data.parts]
        if metrics and missing_parts:
            notes[name] = f"lacks {', '.join(missing_parts)}, so metrics over all views are left out"
            metrics = {metric: value for metric, value in metrics.items() if "/" in metric}
        if metrics:
            alone[name] = metrics
    return Comparison(federated, pooled, alone, notes, len(exam.data))


def split_rows(
    n: int, labels: tuple[str, ...] | None, holdout: float, random: np.random.Generator
) -> tuple[Rows, Rows]:
    """Return the rows to fit on and the held-out rows, with about the same proportions of labels in both."""
    shuffled = random.permutation(n)
    if labels is not None:
        shuffled = shuffled[np.argsort(np.asarray(labels)[shuffled], kind="stable")]
    counted = np.floor(np.arange(n + 1) * holdout + 1e-9)
    out = np.diff(counted) > 0
    return np.sort(shuffled[~out]), np.sort(shuffled[out])


def _split_sites(
    sites: Mapping[str, SiteData], holdout: float, random: np.random.Generator
) -> tuple[dict[str, SiteData], dict[str, SiteData]]:
    training, held_out = {}, {}
    persons = _persons(sites)
    chosen = None if persons is None else _held_out_persons(persons, _labels(sites), holdout, random)
    for name, site in sites.items():
        if persons is None or chosen is None:
            fit, out = split_rows(len(site.data), site.labels, holdout, random)
        else:
            is_out = np.isin(persons[name], chosen)
            fit, out = np.flatnonzero(~is_out), np.flatnonzero(is_out)
        if len(fit):
            training[name] = _take_rows(site, fit)
        if len(out):
            held_out[name] = _take_rows(site, out)
    if not held_out:
        raise DataError(
            "at least one patient must be held out; got 0", where="holdout", hint="Hold out a larger share."
        )
    return training, held_out


def _persons(sites: Mapping[str, SiteData]) -> dict[str, Rows] | None:
    """Return a number for each record's person, the same at all sites; None if a site has no identifiers.

    A record without an identifier is a separate person.
    """
    optional = {name: getattr(site.data, "identifier", None) for name, site in sites.items()}
    identifiers: dict[str, Identifiers] = {name: keys for name, keys in optional.items() if keys is not None}
    if len(identifiers) < len(optional):
        return None
    labels = [
        f"record {row} of {name}" if one is None else f"person {normalise_identifier(one) or one}"
        for name, keys in identifiers.items()
        for row, one in enumerate(keys.column(keys.names[0]))
    ]
    numbers = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    ends = np.cumsum([len(keys) for keys in identifiers.values()])[:-1]
    return dict(zip(identifiers, np.split(numbers, ends), strict=True))


def _held_out_persons(
    persons: Mapping[str, Rows], labels: list[str] | None, holdout: float, random: np.random.Generator
) -> Rows:
    """Return the persons to hold out at all sites, with about the same proportions of groups as in the others."""
    _, first = np.unique(np.concatenate(list(persons.values())), return_index=True)
    person_labels = None if labels is None else tuple(labels[row] for row in first)
    return split_rows(len(first), person_labels, holdout, random)[1]


def _take_rows(site: SiteData, rows: Rows) -> SiteData:
    labels = None if site.labels is None else tuple(site.labels[row] for row in rows)
    return SiteData(site.data.take(rows), labels)


def _labels(sites: Mapping[str, SiteData]) -> list[str] | None:
    if any(site.labels is None for site in sites.values()):
        return None
    return [label for site in sites.values() for label in site.labels or ()]


def _stack_sites(sites: Mapping[str, SiteData]) -> PatientData:
    return concatenate({name: site.data for name, site in sites.items()})


def _assess(estimator: FederatedEstimator, data: Mapping[str, PatientData], exam: _Exam, listener: Listener) -> Figures:
    with Federation.in_process(
        data, policy=UNLIMITED, secure_sum=False, study="comparison", listener=listener
    ) as federation:
        estimator.fit(federation)
        metrics = estimator.assess(exam.data, exam.labels, training=exam.training, training_labels=exam.training_labels)
        return dict(metrics)
