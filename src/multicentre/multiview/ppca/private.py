"""Differentially private fit from one noised sum of outer products.

Loadings, means, noise variances, any number of iterations and relevance determination are functions of the noised sum,
so they cost nothing more.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from multicentre.core.calls import suggest_masks
from multicentre.core.messages import Message, array, count, number, texts
from multicentre.core.noise_plan import Noise, Plan, Planned
from multicentre.core.session import Session
from multicentre.data.schema import Kind, MultiViewSchema
from multicentre.errors import ConfigurationError, NoiseWarning
from multicentre.multiview.agreement import Agreement
from multicentre.multiview.ppca import messages
from multicentre.multiview.ppca.maths.model import Floats
from multicentre.multiview.ppca.maths.moments import PatternMoments, ScatterMoments
from multicentre.multiview.ppca.maths.private import Clipping, NoisedMoments, read_moments
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre.privacy.conversions import rho_of_epsilon

Reference = Mapping[str, Mapping[str, Sequence[float]]]
# Degrees above which the user is warned. At 10 degrees an axis has a cosine of 0.98 with the axis without noise. A
# smaller limit would warn of axes that are still interpreted alike, a larger one would pass axes that are not.
MAX_ANGLE = 10.0


@dataclass(frozen=True)
class Released(Message):
    """Names and the noised sum: all data of a private fit."""

    views: tuple[str, ...] = texts("names of the views, in stacking order")
    columns: dict[str, tuple[str, ...]] = texts("names of the columns", keyed=True)
    kinds: dict[str, tuple[str, ...]] = texts("kind of each column", keyed=True)
    products: Floats = array("noised sum over sites of packed outer products", ("p",))
    noise_sd: float = number("standard deviation of the noise in each of them")
    n_sites: int = count("sites behind the sum")

    @property
    def schema(self) -> MultiViewSchema:
        """Views and columns."""
        return MultiViewSchema(self.views, self.columns, cast("Mapping[str, tuple[Kind, ...]]", self.kinds))


def plan_noise(epsilon: float, delta: float) -> Plan:
    """Return the plan of a private fit: Gaussian noise on one release whose sensitivity is 1.

    A billionth more noise than needed keeps a budget of `epsilon` from being exceeded by rounding.

    Examples
    --------
    >>> planned = plan_noise(3.0, 1e-5).releases[0]
    >>> planned.step.name, planned.times, round(planned.noise.multipliers["products"], 2)
    ('sum_outer_products', 1, 1.39)
    """
    multiplier = (1 + 1e-9) / math.sqrt(2 * rho_of_epsilon(epsilon, delta))
    return Plan((Planned(MvPPCASite.sum_outer_products, Noise("gaussian", {"products": multiplier})),), delta)


def read_reference(reference: Reference, schema: MultiViewSchema) -> tuple[Floats, Floats]:
    """Return the public centre and spread of every column, two arrays of shape (d,).

    Raises
    ------
    ConfigurationError
        The reference lacks a view, has one that no site has, or has other numbers of columns.

    Examples
    --------
    >>> schema = MultiViewSchema(("blood",), {"blood": ("iron", "zinc")}, {"blood": ("number", "number")})
    >>> centre, spread = read_reference({"blood": {"centre": [18.0, 14.0], "spread": [6.0, 2.0]}}, schema)
    >>> spread.tolist()
    [6.0, 2.0]
    """
    if set(reference) != set(schema.views):
        raise ConfigurationError(
            f"reference must have the views of the sites, {', '.join(schema.views)}; got {', '.join(reference)}",
            where="reference",
            hint="Set centre and spread of each view of the sites, and of no other view.",
        )
    for view, size in schema.sizes.items():
        for key, values in reference[view].items():
            if len(values) != size:
                raise ConfigurationError(
                    f"{key} must hold {size} numbers, one per column; got {len(values)}",
                    where=f"reference, view {view!r}, {key}",
                    hint=f"Set one number for each of {', '.join(schema.columns[view])}, in this order.",
                )
    centre, spread = (np.concatenate([reference[view][key] for view in schema.views]) for key in ("centre", "spread"))
    return np.asarray(centre, dtype=np.float64), np.asarray(spread, dtype=np.float64)


def ask_for_products(session: Session, schema: MultiViewSchema, clipping: Clipping) -> Released:
    """Request the noised sum of a private fit from sites that were prepared.

    Unmasked, each site adds the whole noise, since its answer must hide its patients; masked sums share one noise.
    """
    plan = session.plan
    assert plan is not None  # the estimator's own, see plan_noise
    (planned,) = plan.releases
    products = session.sum(MvPPCASite.sum_outer_products, messages.Clip(clipping.radius)).products
    return Released(
        views=tuple(schema.views),
        columns={view: tuple(schema.columns[view]) for view in schema.views},
        kinds={view: tuple(str(kind) for kind in schema.kinds[view]) for view in schema.views},
        products=products,
        noise_sd=planned.noise.multipliers["products"] * session.noise_spread,
        n_sites=len(session.sites),
    )


@dataclass(frozen=True)
class PrivateRows:
    """The patients of all sites as the noised sum shows them: moments about a public centre.

    Parameters
    ----------
    released : Released
    centre, spread : arrays of shape (d,)
        The reference.
    clipping : Clipping
    """

    released: Released
    centre: Floats
    spread: Floats
    clipping: Clipping

    @property
    def moments(self) -> NoisedMoments:
        """Patients, mean and covariance in units of the reference."""
        return read_moments(self.released.products, self.clipping, self.released.noise_sd)

    def agreement(self) -> Agreement:
        """Return the agreement of the sites, computed from the noised moments."""
        released, moments = self.released, self.moments
        return Agreement(
            views=released.views,
            columns=released.columns,
            kinds=released.kinds,
            centre=self.centre + self.spread * moments.mean,
            deviation=self.spread * np.sqrt(np.diagonal(moments.possible_covariance)),
            observed=np.full(len(self.centre), moments.n),
            sites=np.full(len(released.views), float(released.n_sites)),
            incomplete=False,
        )

    def patterns(self, centre: Floats, spread: Floats) -> list[PatternMoments]:
        """Return the moments in the units of the fit."""
        moments, stretch = self.moments, self.spread / spread
        mean = (self.centre + self.spread * moments.mean - centre) / spread
        scatter = moments.n * moments.possible_covariance * np.outer(stretch, stretch)
        whole = PatternMoments(np.ones(len(mean), dtype=np.bool_), ScatterMoments(round(moments.n), mean, scatter))
        return [whole]


def warn_of_noise(moments: NoisedMoments, n_components: int, session: Session) -> float:
    """Return the expected angle of the weakest latent dimension in degrees; warn where it is large."""
    angle = moments.expected_angle(n_components)
    if moments.is_crowded:
        warnings.warn(
            "most patients' rows were shortened to `clip`: the reference's spreads seem too small or its centres far "
            "from these patients, and the model describes the shortened rows.",
            NoiseWarning,
            stacklevel=5,
        )
    if angle > MAX_ANGLE:
        masks = suggest_masks(protection=session.protection, n_sites=len(session.sites))
        effect = f"turns the weakest of {n_components} latent dimensions by about {angle:.0f} degrees"
        if angle >= 90:
            effect = f"hides the weakest of {n_components} latent dimensions"
        warnings.warn(
            f"the noise of differential privacy {effect}. Use fewer dimensions or columns, more patients, "
            f"a larger epsilon, or a reference nearer to these patients. {masks}".strip(),
            NoiseWarning,
            stacklevel=5,
        )
    return angle
