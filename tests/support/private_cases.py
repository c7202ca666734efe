"""Every clipped release of the package: one that declares a sensitivity joins the contract by a line in CASES."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import multicentre as mc
from multicentre.core.messages import Message, Nothing
from multicentre.core.steps import SitePart
from multicentre.multiview.ppca import messages as ppca_messages
from multicentre.multiview.ppca.maths.private import sum_outer_products
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre.phenotyping.agreement import Universe
from multicentre.phenotyping.dpfact import messages as dpfact_messages
from multicentre.phenotyping.dpfact.site import DPFactSite
from multicentre.phenotyping.kernels.mttkrp import mttkrp
from multicentre.regression.private import messages as glm_messages
from multicentre.regression.site import RegressionSite
from support.toy_private import ClippedSite


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
    requests : sequence of (str, Message)
        Steps to call in order; the last one is the clipped release.
    clip : str
        Dotted path of the function that clips; without it the claim must fail.
    unclipped : callable
        What stands in for it then: the same values, not clipped.
    hostile : sequence of requests
        What a coordinator might ask in place of `requests` to make one patient weigh more, or a refusal tell of one.
    """

    part: type[SitePart]
    hold: Callable[[np.ndarray], Any]
    width: int
    requests: Sequence[tuple[str, Message]]
    clip: str
    unclipped: Callable[..., Any]
    hostile: Sequence[Sequence[tuple[str, Message]]] = ()

    @property
    def step(self) -> Any:
        return self.part.steps()[self.requests[-1][0]]

    def release(self, rows: np.ndarray, requests: Sequence[tuple[str, Message]] = ()) -> dict[str, np.ndarray]:
        """Return every field of the release that a site with these rows would make, flat."""
        part = self.part("site", self.hold(rows))
        for name, request in requests or self.requests:
            answer = self.part.steps()[name].run(part, request)
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


N_PROCEDURES, N_DIAGNOSES, BLOCK = 4, 5, 8
EVENT_CODES = {
    "procedure": tuple(f"p{i}" for i in range(N_PROCEDURES)),
    "diagnosis": tuple(f"d{i}" for i in range(N_DIAGNOSES)),
}
BLOCK_CODES = {mode: tuple(f"{mode}{i:03d}" for i in range(16 * BLOCK)) for mode in ("procedure", "diagnosis")}


def events(rows: np.ndarray) -> mc.data.EventTensor:
    """Every number above zero is the count of one pair of codes."""
    places = np.argwhere(rows > 0)
    pairs = np.column_stack([places[:, 0], *np.divmod(places[:, 1], N_DIAGNOSES)])
    return mc.data.EventTensor(pairs, possible(rows[rows > 0]), EVENT_CODES, n_patients=len(rows))


def possible(counts: np.ndarray) -> np.ndarray:
    """Return counts that a tensor may hold."""
    return np.clip(counts, 1e-6, 2.0**31)


def many_codes(rows: np.ndarray) -> mc.data.EventTensor:
    """Every number above zero stands for a block of pairs of codes."""
    patients, blocks = np.nonzero(rows > 0)
    codes = (BLOCK * blocks[:, None] + np.arange(BLOCK)).ravel()
    return mc.data.EventTensor(
        np.column_stack([np.repeat(patients, BLOCK), codes, codes]),
        np.repeat(possible(rows[rows > 0]), BLOCK),
        BLOCK_CODES,
        n_patients=len(rows),
    )


def factors(rank: int = 2, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Public factors whose first column is the same for all codes."""
    random = np.random.default_rng(0)
    drawn = {mode: random.random((len(names), rank)) for mode, names in EVENT_CODES.items()}
    for factor in drawn.values():
        factor[:, 0] = 1.0
        factor *= scale / np.linalg.norm(factor, axis=0)
    return drawn


AGREED = dpfact_messages.Prepared(EVENT_CODES)
PRODUCTS = dpfact_messages.ClipProducts(factors(), "diagnosis", 5, 0.1, 0.1)
PASSES = dpfact_messages.PassPatients(factors(1), "diagnosis", 5, n_passes=2, step=1e-3, largest_product=0.01, seed=3)
HOSTILE_FACTORS = [
    *(factors(scale=scale) for scale in (1e-300, 1e-9, 1e9, 1e154, 1e300)),
    {mode: 0 * factor for mode, factor in factors().items()},
    {mode: -factor for mode, factor in factors().items()},
    {mode: factor[:, :0] for mode, factor in factors().items()},
    {mode: factor[:-1] for mode, factor in factors().items()},
    {"diagnosis": factors()["diagnosis"]},
    dict(reversed(factors().items())),
]
HOSTILE_AGREEMENTS = [
    dpfact_messages.Prepared({**EVENT_CODES, "procedure": ("p1", "p1")}),
    dpfact_messages.Prepared(dict(reversed(EVENT_CODES.items()))),
    dpfact_messages.Prepared({mode: names[:2] for mode, names in EVENT_CODES.items()}),
    dpfact_messages.Prepared({**EVENT_CODES, "procedure": ("unknown",)}),
]


def hostile_asks(name: str, request: Any, **values: Sequence[Any]) -> list[list[tuple[str, Message]]]:
    """Put hostile values into the ask, one by one; and agree on hostile codes before it."""
    changed = [dataclasses.replace(request, **{field: value}) for field, every in values.items() for value in every]
    after = [[("agree", agreed), (name, request)] for agreed in HOSTILE_AGREEMENTS]
    return [[("agree", AGREED), (name, one)] for one in changed] + after


def unclipped_products(tensor: Any, factors: Any, axis: int, *, bounds: Any, n_sweeps: int) -> Any:
    ones = np.ones((tensor.shape[0], factors[0].shape[1]))
    return mttkrp(tensor, [ones, *factors], axis) / bounds[0], np.zeros(3)


def unclipped_descent(tensor: Any, factors: Any, axis: int, **how: Any) -> Any:
    ones = np.ones((tensor.shape[0], factors[0].shape[1]))
    return factors[axis - 1] + how["step"] * mttkrp(tensor, [ones, *factors], axis)


BOX = {
    "lower": -np.ones(3),
    "upper": np.ones(3),
    "outcome_lower": -1.0,
    "outcome_upper": 1.0,
}
# Ends of the bounds of a column, among them bounds in the wrong order and without a width.
HOSTILE_ENDS = [(0.0, 0.0), (1.0, -1.0), (-1e-300, 1e-300), (0.0, 5e-324), (-1e308, 1e308), (1e12, 2e12), (-1e-9, 0.0)]


def numbers(rows: np.ndarray) -> mc.data.TableData:
    return mc.data.TableData(rows[:, :3], rows[:, 3], outcome="number")


def classes(rows: np.ndarray) -> mc.data.TableData:
    return mc.data.TableData(rows[:, :3], (rows[:, 3] > 0).astype(int), classes=["no", "yes"])


def hostile_boxes(name: str, kind: Any, **more: Any) -> list[list[tuple[str, Message]]]:
    """Change the bounds of all columns and of the outcome, and their number."""
    boxes = [
        {"lower": np.full(3, low), "upper": np.full(3, high), "outcome_lower": low, "outcome_upper": high}
        for low, high in HOSTILE_ENDS
    ]
    boxes += [{**BOX, "lower": -np.ones(2)}, {**BOX, "upper": np.ones(0)}]
    return [[(name, kind(**{**more, **box}))] for box in boxes]


def unclipped_box(values: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> Any:
    return (values - 0.5 * (lower + upper)) / (0.5 * (upper - lower)), np.zeros(values.shape, dtype=bool)


LINEAR = {"family": "gaussian"}
LOGISTIC = {"family": "binomial", "coefficients": np.zeros(4)}

CASES = {
    "fed-glm, moments": ClippedCase(
        RegressionSite,
        numbers,
        4,
        [("sum_private_moments", glm_messages.Box(**LINEAR, **BOX))],
        "multicentre.regression.private.site.scale_to_box",
        unclipped_box,
        hostile_boxes("sum_private_moments", glm_messages.Box, **LINEAR),
    ),
    "fed-glm, derivatives": ClippedCase(
        RegressionSite,
        classes,
        4,
        [("sum_private_derivatives", glm_messages.PrivateAt(**LOGISTIC, **{**BOX, "outcome_lower": 0.0}))],
        "multicentre.regression.private.site.scale_to_box",
        unclipped_box,
        [
            *hostile_boxes("sum_private_derivatives", glm_messages.PrivateAt, **LOGISTIC),
            *(
                [("sum_private_derivatives", glm_messages.PrivateAt(**{**LOGISTIC, "coefficients": at}, **BOX))]
                for at in (np.full(4, 1e6), np.full(4, -1e300), np.zeros(3), np.array([0.0, 1e3, -1e3, 5e-324]))
            ),
        ],
    ),
    "toy-private-mean": ClippedCase(
        ClippedSite, lambda rows: rows, 4, [("clipped_sum", Nothing())], "support.toy_private.clip", lambda rows: rows
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
    "dpfact, codes": ClippedCase(
        DPFactSite,
        many_codes,
        16,
        [("spread_codes", Universe(BLOCK_CODES))],
        "multicentre.phenotyping.dpfact.maths.private.code_weights",
        lambda own_codes: np.ones(len(own_codes)),
        [
            [("spread_codes", Universe({**BLOCK_CODES, "procedure": names}))]
            for names in (("procedure001",), ("unknown",), ("procedure001", "procedure001"))
        ],
    ),
    "dpfact, start": ClippedCase(
        DPFactSite,
        events,
        N_PROCEDURES * N_DIAGNOSES,
        [("agree", AGREED), ("sum_clipped_cooccurrence", Nothing())],
        "multicentre.phenotyping.dpfact.private_site.cooccurrence",
        lambda tensor: {(1, 2): csr_array((tensor.counts, tuple(tensor.coordinates[:, 1:].T)), shape=tensor.shape[1:])},
        hostile_asks("sum_clipped_cooccurrence", Nothing()),
    ),
    "dpfact, dp-als": ClippedCase(
        DPFactSite,
        events,
        N_PROCEDURES * N_DIAGNOSES,
        [("agree", AGREED), ("sum_clipped_products", PRODUCTS)],
        "multicentre.phenotyping.dpfact.maths.private.sum_clipped_products",
        unclipped_products,
        hostile_asks(
            "sum_clipped_products",
            PRODUCTS,
            factors=HOSTILE_FACTORS,
            wanted=["procedure", "nothing", ""],
            n_sweeps=[0, -1, 1000, 10**9],
            largest_product=[0.0, -1.0, 5e-324, 1e-6, 1e6, 1e300],
            largest_gram=[0.0, -1.0, 5e-324, 1e-6, 1e6, 1e300],
        ),
    ),
    "dpfact, bolt-on": ClippedCase(
        DPFactSite,
        events,
        N_PROCEDURES * N_DIAGNOSES,
        [("agree", AGREED), ("pass_clipped_patients", PASSES)],
        "multicentre.phenotyping.dpfact.maths.private.descend_clipped",
        unclipped_descent,
        hostile_asks(
            "pass_clipped_patients",
            PASSES,
            factors=HOSTILE_FACTORS,
            wanted=["procedure", "nothing", ""],
            n_sweeps=[0, -1, 1000, 10**9],
            n_passes=[0, -3, 1, 7, 10**9],
            step=[0.0, -1.0, 1e-300, 1e-12, 1e-6, 1.0, 2.5, 1e300],
            largest_product=[0.0, -1.0, 5e-324, 1e-6, 1.0, 1e6, 1e300],
            seed=[0, 2**40],
        ),
    ),
}
