"""The methods of Table 3: FedMSGL in its variants, and the compared methods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from multicentre.clustering.fedmsgl import FedMSGL
from multicentre_papers.baselines.fedmvl import FedMVL
from multicentre_papers.baselines.fuzzy import FedMVFCM, FedMVFPC
from multicentre_papers.baselines.pooled_clustering import CDMGC, FSMSC, RCAGL, SC, SFMC, Plain
from multicentre_papers.fedmsgl import published
from multicentre_papers.fedmsgl.plan import Plan
from multicentre_papers.published import FedMSGLAsPrinted, FedMSGLAsPublished

Settings = Mapping[str, Any]
Sharing = Literal["views", "patients", "nothing", "nothing, each view", "nothing, unit rows"]
PLAIN: tuple[Settings, ...] = ({},)


@dataclass(frozen=True)
class Contender:
    """A method of the table.

    Parameters
    ----------
    name : str
    make : callable
        From the number of clusters, settings and a seed to an unfitted estimator.
    sharing : {"views", "patients", "nothing", "nothing, each view", "nothing, unit rows"}
        Data per site: views of all patients, or patients with all views; or one site has all data and uses all views
        together, one at a time, or with rows scaled to length 1.
    printed : str, optional
        Its row in Table 3.
    ours : bool
        A variant of FedMSGL: above a number of patients, runs share a fit and differ in k-means.
    draws : bool
        Whether runs differ by their seed.
    slow : bool
        Whether a fit to 2000 patients takes minutes.
    as_printed : bool
        Follows the paper or its authors' code to the letter.
    grid : tuple of mapping
        Settings that are compared by the labels, as in the paper.
    """

    name: str
    make: Callable[[int, Settings, int], Any]
    sharing: Sharing = "nothing"
    printed: str | None = None
    ours: bool = False
    draws: bool = True
    slow: bool = False
    as_printed: bool = False
    grid: tuple[Settings, ...] = PLAIN

    def n_runs(self, n_patients: int, plan: Plan) -> int:
        """Return the number of runs on this number of patients."""
        if not self.draws:
            return 1
        return plan.n_large_runs if self.slow and n_patients > plan.small else plan.n_runs

    def is_run(self, n_patients: int, plan: Plan) -> bool:
        """Return whether the plan runs the method on this number of patients."""
        return not self.as_printed or n_patients <= plan.most_published


def _grid(**choices: tuple[Any, ...]) -> tuple[Settings, ...]:
    """Return every combination of choices."""
    combined: list[Settings] = [{}]
    for name, each in choices.items():
        combined = [{**one, name: choice} for one in combined for choice in each]
    return tuple(combined)


PRESET_GRID = _grid(norm=("raw", "l2", "z"), share_penalty=(3.0, 5.0, 10.0, 30.0), incidence=("binary", "soft", "sqrt"))
"""Settings of FedMSGL that are compared by the labels."""

ONE_SHOT, THREE_ROUNDS = "FedMSGL, one round", "FedMSGL, three rounds"
AS_PUBLISHED, PAPER = "FedMSGL, as published", "FedMSGL, formulas of the paper"


def contenders() -> list[Contender]:
    """Return all methods, FedMSGL first."""
    return [*_ours(), *_compared(), *_plain()]


def _ours() -> list[Contender]:
    def variant(
        name: str,
        kind: type[FedMSGL] = FedMSGL,
        *,
        as_printed: bool = False,
        grid: tuple[Settings, ...] = PLAIN,
        **fixed: Any,
    ) -> Contender:
        return Contender(
            name,
            lambda n_clusters, settings, seed: kind(n_clusters, random_state=seed, **fixed, **settings),
            "views",
            published.FEDMSGL,
            ours=True,
            as_printed=as_printed,
            grid=grid,
        )

    return [
        variant(ONE_SHOT, max_iter=1, grid=PRESET_GRID),
        variant(THREE_ROUNDS, max_iter=3),
        variant(AS_PUBLISHED, FedMSGLAsPublished, as_printed=True),
        variant(PAPER, FedMSGLAsPrinted, as_printed=True),
    ]


def _compared() -> list[Contender]:
    def rival(name: str, kind: Any, **facts: Any) -> Contender:
        facts = {"printed": name, **facts}
        return Contender(
            name, lambda n_clusters, settings, seed: kind(n_clusters, random_state=seed, **settings), **facts
        )

    fuzziness = _grid(fuzziness=(1.1, 1.5, 2.0))
    return [
        rival(
            "SC, mean of the views",
            SC,
            sharing="nothing, each view",
            printed=published.SC,
            grid=_grid(graph=("self_tuning", "neighbours")),
        ),
        rival("SFMC", SFMC, draws=False, slow=True, grid=_grid(anchor_rate=(0.1, 0.5, 1.0))),
        rival("CDMGC", CDMGC, slow=True, grid=_grid(n_neighbours=(5, 10, 15))),
        rival("CDMGC, rows of length 1", CDMGC, sharing="nothing, unit rows", slow=True, printed=None),
        rival("FSMSC", FSMSC, grid=_grid(guide=(50.0, 500.0, 5000.0), shrink=(1.0, 10.0, 100.0))),
        rival("RCAGL", RCAGL, slow=True, grid=_grid(anchors_per_cluster=(1, 2, 3), penalty=(1.0, 1e2, 1e3, 1e6))),
        rival(
            "FedMVL",
            functools.partial(
                FedMVL, start="random", consensus_penalty=0.5, guide_penalty=0.5, orthogonality_penalty=0.1
            ),
            sharing="views",
            printed="FedMVL",
            grid=_grid(
                view_evenness=(0.1, 0.5, 1.0), consensus_penalty=(0.1, 0.5, 2.0), orthogonality_penalty=(0.1, 1.0)
            ),
        ),
        rival("FedMVL, spectral start", FedMVL, sharing="views", printed=None),
        rival("FedMVFCM", FedMVFCM, sharing="patients", grid=fuzziness),
        rival("FedMVFPC", FedMVFPC, sharing="patients", grid=fuzziness),
    ]


def _plain() -> list[Contender]:
    def plain(name: str, algorithm: Literal["spectral", "kmeans"], scaling: Literal["rows", "columns"]) -> Contender:
        return Contender(
            name,
            lambda n_clusters, settings, seed: Plain(
                n_clusters, algorithm=algorithm, scaling=scaling, random_state=seed, **settings
            ),
        )

    return [
        plain("spectral, rows of length 1", "spectral", "rows"),
        plain("k-means, rows of length 1", "kmeans", "rows"),
        plain("spectral, z-scores", "spectral", "columns"),
        plain("k-means, z-scores", "kmeans", "columns"),
    ]
