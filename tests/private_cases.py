"""Every clipped release of the package: one that declares a sensitivity joins the contract by a line in CASES."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import multicentre as mc
from multicentre.federation.messages import Message, Nothing
from multicentre.federation.steps import SitePart
from multicentre.multiview.ppca import messages as ppca_messages
from multicentre.multiview.ppca.maths.private import sum_outer_products
from multicentre.multiview.ppca.site import MvPPCASite
from toy_private import ClippedSite


@dataclass(frozen=True)
class ClippedCase:
    """One clipped release.

    Parameters
    ----------
    part : type
        The site part.
    hold : callable
        From rows, shape (n, width), to the site's data.
    width : int
        Numbers that make up one patient.
    asks : sequence of (str, Message)
        Steps to call in order; the last one is the clipped release.
    clip : str
        Dotted path of the function that clips; without it the claim must fail.
    unclipped : callable
        What stands in for it then: the same values, not clipped.
    hostile : sequence of asks
        What a coordinator might ask in place of `asks` to make one patient weigh more, or a refusal tell of one.
    """

    part: type[SitePart]
    hold: Callable[[np.ndarray], Any]
    width: int
    asks: Sequence[tuple[str, Message]]
    clip: str
    unclipped: Callable[..., Any]
    hostile: Sequence[Sequence[tuple[str, Message]]] = ()

    @property
    def step(self) -> Any:
        return self.part.steps()[self.asks[-1][0]]

    def release(self, rows: np.ndarray, asks: Sequence[tuple[str, Message]] = ()) -> dict[str, np.ndarray]:
        """Return every field of the release that a site with these rows would make, flat."""
        part = self.part("site", self.hold(rows))
        for name, ask in asks or self.asks:
            answer = self.part.steps()[name].run(part, ask)
        return {field: np.ravel(np.asarray(value, dtype=np.float64)) for field, _, _, value in answer.items()}


def two_views(rows: np.ndarray) -> mc.data.MultiViewData:
    names = {"a": ("a1", "a2"), "b": ("b1", "b2", "b3")}
    return mc.data.MultiViewData({"a": rows[:, :2], "b": rows[:, 2:]}, columns=names)


STANDARDS = ppca_messages.Standards(
    views=("a", "b"),
    columns={"a": ("a1", "a2"), "b": ("b1", "b2", "b3")},
    sizes={"a": 2, "b": 3},
    centre=np.array([0.0, 1.0, -1.0, 0.0, 5.0]),
    spread=np.array([1.0, 2.0, 0.5, 1.0, 10.0]),
    noise="isotropic",
    incomplete=False,
    complete=True,
    n_components=1,
    case_mix_weight=0.0,
)


def standards(centre: float, spread: float, **more: Any) -> ppca_messages.Standards:
    return dataclasses.replace(STANDARDS, centre=np.full(5, centre), spread=np.full(5, spread), **more)


CASES = {
    "toy-private-mean": ClippedCase(
        ClippedSite, lambda rows: rows, 4, [("clipped_sum", Nothing())], "toy_private.clip", lambda rows: rows
    ),
    "fed-mv-ppca": ClippedCase(
        MvPPCASite,
        two_views,
        5,
        [("prepare", STANDARDS), ("sum_outer_products", ppca_messages.Clip(2.0))],
        "multicentre.multiview.ppca.site.sum_outer_products",
        lambda blocks, clipping: sum_outer_products(blocks, clipping, clip=lambda rows, radius: rows),
        [
            [
                (
                    "prepare",
                    dataclasses.replace(STANDARDS, centre=np.full(5, centre), spread=np.full(5, spread), **more),
                ),
                ("sum_outer_products", ppca_messages.Clip(radius)),
            ]
            for centre in (0.0, 3.0, 1e300)
            for spread in (0.0, 1e-300, 1e-100, 1.0, -1.0, 1e100, 1e203, 1e308)
            for radius in (0.0, 5e-324, 1e-202, 1e-100, 1.0, 1e100, 1e250)
            for more in ({}, {"complete": False})
        ],
    ),
}
