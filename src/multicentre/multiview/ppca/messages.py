"""Messages of Fed-mv-PPCA: requests of the coordinator and releases of the sites.

Letters: d features over all views, k views, q latent dimensions, e = q + 1. All values are in the units that the sites
agreed on (columns centred and divided by their scale).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from multicentre.core.messages import Message, array, count, flag, number, text, texts
from multicentre.core.steps import Release
from multicentre.multiview.ppca.maths.model import Floats

# Bound on counts of patients: beyond any study.
PATIENTS = 2.0**40
# Bound on sums of standardised entries. A larger bound admits more patients, a smaller one rounds less: masked sums of
# four sites have 24 binary digits after the point.
SUM = 2.0**36
# Bound on patients of a private fit: sums of rows on the grid of `maths.private` are exact up to it.
MAX_PATIENTS = 2.0**22


@dataclass(frozen=True)
class Standards(Message):
    """Agreed units of the rows, and settings that stay fixed during a fit."""

    views: tuple[str, ...] = texts("names of the views, in stacking order")
    columns: dict[str, tuple[str, ...]] = texts("names of the columns", keyed=True)
    sizes: dict[str, int] = count("number of columns of each view", keyed=True)
    centre: Floats = array("taken from each column", ("d",), unit="column's")
    spread: Floats = array("by which each column is divided", ("d",), unit="column's")
    noise: str = text("isotropic or diagonal")
    incomplete: bool = flag("some patient at some site has a view in part")
    complete: bool = flag("a patient who lacks an entry of any view is refused")
    n_components: int = count("latent dimensions q")
    case_mix_weight: float = number("weight, in patients, of the prior on the covariance of each site's latents")


@dataclass(frozen=True)
class SiteMemory(Standards):
    """State of a site between rounds."""

    latent_mean: Floats = array(
        "the site's own case mix before and after the last round: mean of the latents", (2, "q")
    )
    latent_covariance: Floats = array("the same: covariance of the latents", (2, "q", "q"))
    cross: Floats | None = array("entries times the latents, before and after", (2, "d", "e"), optional=True)
    second: Floats | None = array("latents times latents, by view or feature", (2, "g", "e", "e"), optional=True)
    squares: Floats | None = array("squared entries", (2, "d"), optional=True)
    reference: Floats | None = array("values from which entries are taken in these sums", (2, "d"), optional=True)
    noise_variance: Floats | None = array("the site's own noise variances", (2, "d"), optional=True)


@dataclass(frozen=True)
class MinimumMet(Release):
    """Confirmation that a site has enough patients."""

    enough: bool = flag("there are enough patients for the site's parameters to be drawn")


@dataclass(frozen=True)
class FirstMoments(Release):
    """Sums from which the fit starts."""

    pairs: Floats = array("patients who have both views", ("k", "k"), unit="patients", bound=PATIENTS)
    total: Floats = array("sum of the entries", ("d",), bound=SUM)
    variances: Floats = array("sum of squares about the site's own mean", ("d",), bound=SUM)


@dataclass(frozen=True)
class Directions(Message):
    """Directions in feature space, to be multiplied with the sites' second moments."""

    directions: Floats = array("directions", ("d", "p"))
    pairs: Floats = array("patients who have both views, over all sites", ("k", "k"), unit="patients")


@dataclass(frozen=True)
class Products(Release):
    """Within-site second moments times the directions."""

    products: Floats = array("second moments about the site's mean, times the directions", ("d", "p"), bound=SUM)


@dataclass(frozen=True)
class Clip(Message):
    """Length to which a differentially private fit shortens rows."""

    radius: float = number("length to which longer rows are shortened, in units of the public reference")


@dataclass(frozen=True)
class OuterProducts(Release):
    """The one release of a differentially private fit, scaled so that one patient changes it by at most 1."""

    products: Floats = array(
        "sums of products of two columns, patients and column sums among them; rows shortened to a common length",
        ("p",),
        unit="the most that one patient can add",
        bound=MAX_PATIENTS,
        sensitivity=1.0,
    )


@dataclass(frozen=True)
class Shared(Message):
    """Parameters shared by all sites, and the change of latent units since the last round."""

    loadings: Floats = array("loadings W", ("d", "q"))
    mean: Floats = array("means mu", ("d",))
    noise: Floats = array("noise variance of each feature", ("d",))
    intercept_variance: Floats = array("variance of the sites' intercepts; 0 without intercepts", ("d",))
    gauge_mean: Floats = array("origin of the new latent units, in the old ones", ("q",))
    gauge_axes: Floats = array("axes of the new latent units", ("q", "q"))
    undo: bool = flag("the last round is refused: the site returns to its state before it")


@dataclass(frozen=True)
class SharedSums(Release):
    """Sums over a site's patients for the shared update; zeros for views that the site lacks."""

    cross: Floats = array("entries about their mean, times the latents", ("d", "e"), bound=SUM)
    second: Floats = array(
        "latents times latents, by view (or by feature where entries are missing)", ("g", "e", "e"), bound=SUM
    )
    squares: Floats = array("squared entries about their mean", ("d",), bound=SUM)
    latent_first: Floats = array("sum of the latents", ("q",), bound=SUM)
    latent_second: Floats = array("sum of latents times latents", ("q", "q"), bound=SUM)
    n_rows: float = number("patients", unit="patients", bound=PATIENTS)
    log_likelihood: float = number("log-likelihood of the site's rows", bound=SUM)
    intercept_sites: Floats = array("1 for each column that the site has", ("d",), bound=1.0)
    intercept_total: Floats = array("the site's offsets of its columns, over their variance", ("d",), bound=SUM)
    intercept_squares: Floats = array("their squares", ("d",), bound=SUM)
    intercept_information: Floats = array("how far the data decide the offsets, over their variance", ("d",), bound=SUM)
    latent_pull: Floats = array("slope of the prior of the site's case mix", ("q", "q"), bound=SUM)
    latent_weight: float = number("curvature of the prior of the site's case mix", unit="patients", bound=PATIENTS)
    log_prior: float = number("log prior density of the site's case mix, up to a constant", bound=SUM)


@dataclass(frozen=True)
class Global(Message):
    """The law from which every site's parameters are drawn (equations 4 to 6)."""

    loadings: Floats = array("mean loadings", ("d", "q"))
    mean: Floats = array("mean of the means", ("d",))
    loadings_variance: Floats = array("variance of the loadings between sites; infinite if flat", ("k",), finite=False)
    mean_variance: Floats = array("variance of the means between sites; infinite where flat", ("k",), finite=False)
    noise_shape: Floats = array("shape of the noise variances' inverse gamma law", ("k",))
    noise_scale: Floats = array("scale of the noise variances' inverse gamma law", ("k",))
    noise: Floats = array("mean noise variance, by view or by feature", ("g",))
    gauge_mean: Floats = array("origin of the new latent units, in the old ones", ("q",))
    gauge_axes: Floats = array("axes of the new latent units", ("q", "q"))
    undo: bool = flag("the last round is refused: the site returns to its state before it")


@dataclass(frozen=True)
class AroundRequest(Global):
    """One round around the global law."""

    point_variance: Floats = array(
        "prior variance of the loadings of views that one site has; infinite for none", ("k",), finite=False
    )
    n_iterations: int = count("local iterations I")


@dataclass(frozen=True)
class GlobalSums(Release):
    """A site's parameters as terms of sums: differences to the global law, their squares, and their precision."""

    sites: Floats = array("1 for each view that the site has", ("k",), bound=1.0)
    loadings: Floats = array("loadings, minus the global ones", ("d", "q"), bound=SUM)
    mean: Floats = array("means, minus the global ones", ("d",), bound=SUM)
    loadings_square: Floats = array("squared norm of the loadings' difference", ("k",), bound=SUM)
    mean_square: Floats = array("squared norm of the means' difference", ("k",), bound=SUM)
    loadings_spread: Floats = array("posterior variance of the loadings", ("k",), bound=SUM)
    mean_spread: Floats = array("posterior variance of the means", ("k",), bound=SUM)
    loadings_information: Floats = array("how far the data decide the loadings", ("k",), bound=SUM)
    mean_information: Floats = array("how far the data decide the means", ("k",), bound=SUM)
    weight: Floats = array("how much the site's rows decide, against the global law", ("k", "e", "e"), bound=SUM)
    weight_loadings: Floats = array("products of these shares over the loadings", ("k", "e", "e"), bound=SUM)
    weight_mean: Floats = array("products of these shares over the means", ("k", "e", "e"), bound=SUM)
    noise: Floats = array("noise variance, relative to the global one", ("g",), bound=SUM)
    noise_inverse: Floats = array("its inverse", ("k",), bound=SUM)
    noise_log: Floats = array("its logarithm", ("k",), bound=SUM)
    latent_first: Floats = array("sum of the latents", ("q",), bound=SUM)
    latent_second: Floats = array("sum of latents times latents", ("q", "q"), bound=SUM)
    products: Floats = array("products of the differences of loadings and means", ("k", "e", "e"), bound=SUM)
    latent_pull: Floats = array("slope of the prior of the site's case mix", ("q", "q"), bound=SUM)
    latent_weight: float = number("curvature of the prior of the site's case mix", unit="patients", bound=PATIENTS)
    n_rows: float = number("patients", unit="patients", bound=PATIENTS)
    objective: float = number("log posterior density after the local fit, or its bound", bound=SUM)


@dataclass(frozen=True)
class Law(Message):
    """A fitted law, to be compared with the sites' rows."""

    loadings: Floats = array("loadings", ("d", "q"))
    mean: Floats = array("means", ("d",))
    noise: Floats = array("noise variance of each feature", ("d",))
    deviation: Floats = array("standard deviation of each column over all sites: the unit of errors", ("d",))


@dataclass(frozen=True)
class CompletedProducts(Release):
    """Second moments of a site's patients, entries that they lack replaced by their expectation under the law."""

    products: Floats = array("products of two columns about their mean", ("d", "d"), bound=SUM)
    n_rows: float = number("patients", unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class Comparison(Law):
    """A law and second moments over all sites, from which each site subtracts its own patients."""

    products: Floats = array("products of two columns about their mean, over all sites", ("d", "d"))
    n_rows: float = number("patients of all sites", unit="patients")
    sites: Floats = array("sites that have the view", ("k",))


@dataclass(frozen=True)
class PredictionErrors(Release):
    """Errors of a site's columns, predicted from the other views with what the other sites contributed."""

    absolute: Floats = array("sum of absolute errors, by way of prediction", ("d", "c"), bound=SUM)
    squares: Floats = array("sum of squared errors", ("d", "c"), bound=SUM)
    variances: Floats = array("sum of the variances that the prediction states", ("d", "c"), bound=SUM)
    entries: Floats = array("entries behind them", ("d",), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class Draws(Law):
    """A law around which a site draws its own parameters, for the WAIC."""

    n_draws: int = count("draws that count")
    n_burn: int = count("draws before those")
    seed: int = count("seed of the sites' random streams")


@dataclass(frozen=True)
class WaicParts(Release):
    """A site's terms of the WAIC."""

    lppd: float = number("log pointwise predictive density", bound=SUM)
    p_waic: float = number("effective number of parameters", bound=SUM)
    n_rows: float = number("patients", unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class Evaluation(Release):
    """Log-likelihood, errors and variance explained of a site's rows, as sums over its patients."""

    log_likelihood: float = number("log-likelihood", bound=SUM)
    n_rows: float = number("patients", unit="patients", bound=PATIENTS)
    absolute_error: Floats = array(
        "sum of absolute reconstruction errors", ("k",), unit="standard deviations", bound=SUM
    )
    entries: Floats = array("entries behind it", ("k",), bound=SUM)
    cross_view_error: Floats = array(
        "sum of absolute errors, each view predicted from the others", ("k",), unit="standard deviations", bound=SUM
    )
    cross_view_entries: Floats = array("entries behind it", ("k",), bound=SUM)
    total_square: Floats = array("sum of squared entries about the mean", ("k",), bound=SUM)
    square_after_axis: Floats = array("the same after each latent dimension", ("k", "q"), bound=SUM)
    square_after_all: Floats = array("the same after all latent dimensions", ("k",), bound=SUM)


def fields_of(record: Any, kind: type[Any] | None = None) -> dict[str, Any]:
    """Return the fields that dataclass `kind` (the record's own by default) has, with the record's values."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(kind or type(record))}
