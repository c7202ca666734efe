"""Comparison of a method fitted federated, on pooled rows, and at each site alone.

Only a simulation can pool rows. The fits run in temporary federations without ledgers. For sites with different views
of the same patients, see :mod:`multicentre.studies.vertical`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.consortium.federation import Federation
from multicentre.data.concatenate import concatenate
from multicentre.data.identifiers import Identifiers
from multicentre.data.kinds import PatientData
from multicentre.estimator.base import FederatedEstimator, Metric
from multicentre.federation.errors import DataError, MulticentreError
from multicentre.federation.rounds import Listener
from multicentre.privacy.normalisation import normalise_identifier
from multicentre.privacy.policy import Policy
from multicentre.studies.sites import SiteData

Rows = NDArray[np.int64]
Figures = dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """Metrics of federated, pooled and single-site fits, on held-out patients or on the patients of all fits.

    Parameters
    ----------
    federated, pooled : dict from str to float
        Metrics by name; empty if the fit failed.
    site_alone : dict from str to dict
        Metrics by site; sites whose fit failed are absent.
    notes : dict from str to str
        Reason why a fit or its assessment failed, by ``federated``, ``pooled`` or the site's name.
    n_held_out : int
        Number of patients for the metrics.
    held_out : bool, default True
        True if these patients are held out of all fits; False if they are part of all fits.
    own_metrics : mapping of str to Metric
        Metrics that the comparison itself describes.
    """

    federated: Figures
    pooled: Figures
    site_alone: dict[str, Figures]
    notes: dict[str, str]
    n_held_out: int
    held_out: bool = True
    own_metrics: Mapping[str, Metric] = field(default_factory=dict)

    def to_dict(self, described: Mapping[str, Metric]) -> dict[str, Any]:
        """Return one entry per metric, in the format of ``comparison.json``.

        Parameters
        ----------
        described : mapping from str to Metric
            The estimator's descriptions of its metrics; metrics without a description are left out.
        """
        return {
            "metrics": [self._row(name, metric) for name, metric in named_metrics(self, described).items()],
            "notes": self.notes,
            "patients_held_out": self.n_held_out if self.held_out else None,
            "patients_of_all_fits": None if self.held_out else self.n_held_out,
        }

    def _row(self, name: str, metric: Metric) -> dict[str, Any]:
        return {
            "name": name,
            "label": metric.label,
            "better": metric.better,
            "federated": self.federated.get(name),
            "pooled": self.pooled.get(name),
            "site_alone": {site: metrics[name] for site, metrics in self.site_alone.items() if name in metrics},
            "note": "; ".join(f"{who}: {why}" for who, why in self.notes.items()),
        }


def named_metrics(comparison: Comparison, described: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the description of each metric; ``imputation_mae/worst`` takes that of ``imputation_mae``."""
    fits = (comparison.federated, comparison.pooled, *comparison.site_alone.values())
    described = {**described, **comparison.own_metrics}
    named = {}
    for name in dict.fromkeys(name for metrics in fits for name in metrics):
        kind, _, part = name.partition("/")
        if name in described:
            named[name] = described[name]
        elif kind in described:
            named[name] = replace(described[kind], label=f"{described[kind].label}, {part}")
    return named


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
    exam = _Exam(_stacked(held_out), _labels(held_out), _stacked(training), _labels(training))
    listener_for = listener_for or (lambda _: Listener())
    notes: dict[str, str] = {}

    def assess(who: str, data: Mapping[str, PatientData]) -> Figures:
        try:
            return _assess(unfitted(estimator), data, exam, listener_for(who))
        except MulticentreError as error:
            notes[who] = f"{error.where}: {error.what}" if error.where else error.what
        except np.linalg.LinAlgError:
            notes[who] = "the equations of the fit have no solution"
        return {}

    federated = assess("federated", train)
    pooled = assess("pooled", {"pooled": exam.training})
    alone = {}
    for name, data in train.items():
        metrics = assess(name, {name: data})
        lacking = [part for part in exam.data.parts if part not in data.parts]
        if metrics and lacking:
            notes[name] = f"lacks {', '.join(lacking)}, so metrics over all views are left out"
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
            training[name] = _taken(site, fit)
        if len(out):
            held_out[name] = _taken(site, out)
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


def _taken(site: SiteData, rows: Rows) -> SiteData:
    labels = None if site.labels is None else tuple(site.labels[row] for row in rows)
    return SiteData(site.data.take(rows), labels)


def _labels(sites: Mapping[str, SiteData]) -> list[str] | None:
    if any(site.labels is None for site in sites.values()):
        return None
    return [label for site in sites.values() for label in site.labels or ()]


def _stacked(sites: Mapping[str, SiteData]) -> PatientData:
    return concatenate({name: site.data for name, site in sites.items()})


def _assess(estimator: FederatedEstimator, data: Mapping[str, PatientData], exam: _Exam, listener: Listener) -> Figures:
    unbound = Policy(min_patients=1)
    with Federation.in_process(
        data, policy=unbound, secure_sum=False, study="comparison", listener=listener
    ) as federation:
        estimator.fit(federation)
        metrics = estimator.assess(exam.data, exam.labels, training=exam.training, training_labels=exam.training_labels)
        return dict(metrics)
