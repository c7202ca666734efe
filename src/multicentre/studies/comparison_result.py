"""Result of a comparison: metrics of the federated, pooled and single-site fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from multicentre.estimator.base import Metric

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
    comparison_metrics : mapping of str to Metric
        Metrics that the comparison itself describes.
    """

    federated: Figures
    pooled: Figures
    site_alone: dict[str, Figures]
    notes: dict[str, str]
    n_held_out: int
    held_out: bool = True
    comparison_metrics: Mapping[str, Metric] = field(default_factory=dict)

    def to_dict(self, descriptions: Mapping[str, Metric]) -> dict[str, Any]:
        """Return one entry per metric, in the format of ``comparison.json``.

        Parameters
        ----------
        descriptions : mapping from str to Metric
            The estimator's descriptions of its metrics; metrics without a description are left out.
        """
        return {
            "metrics": [self._row(name, metric) for name, metric in named_metrics(self, descriptions).items()],
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
            "note": "; ".join(f"{fit}: {reason}" for fit, reason in self.notes.items()),
        }


def named_metrics(comparison: Comparison, descriptions: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the description of each metric; ``imputation_mae/worst`` takes that of ``imputation_mae``."""
    fits = (comparison.federated, comparison.pooled, *comparison.site_alone.values())
    descriptions = {**descriptions, **comparison.comparison_metrics}
    named = {}
    for name in dict.fromkeys(name for metrics in fits for name in metrics):
        kind, _, part = name.partition("/")
        if name in descriptions:
            named[name] = descriptions[name]
        elif kind in descriptions:
            named[name] = replace(descriptions[kind], label=f"{descriptions[kind].label}, {part}")
    return named
