"""Messages of DPFact: requests of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, arrays, count, flag, number, text, texts
from multicentre.core.steps import Release
from multicentre.phenotyping.agreement import COUNTS, PATIENTS, TensorMemory
from multicentre.phenotyping.fitted.fit_sums import PRODUCTS

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Factors(Message):
    """Factor matrices of all code modes."""

    factors: dict[str, Floats] = arrays("factor matrix of each mode", ("c", "r"))


@dataclass(frozen=True)
class Trial(Factors):
    """State of the coordinator between trials of starts: the best factors so far."""

    loss: float = number("loss of these factors, from released sums; 0 before the first trial")


@dataclass(frozen=True)
class Begin(Factors):
    """The factors to start from."""

    seed: int = count("seed of the sites' random streams; no privacy noise comes from it")


@dataclass(frozen=True)
class SiteMemory(TensorMemory):
    """State of a site between rounds; it stays at the site."""

    seed: int = count("seed of the site's random streams")
    factors: dict[str, Floats] = arrays("factor matrices that the site works with", ("c", "r"))
    memberships: Floats = array("membership of each patient in each phenotype", ("n", "r"))


@dataclass(frozen=True)
class Prepared(Message):
    """The codes that the sites agreed on, without any factor."""

    codes: dict[str, tuple[str, ...]] = texts("agreed codes of every mode", keyed=True)


@dataclass(frozen=True)
class RareCodes(Release):
    """Entries and codes of the site that the agreed list leaves out, as terms of sums over sites."""

    n_entries: float = number("entries above zero of all codes", bound=COUNTS)
    n_entries_left_out: float = number("entries with a code that is not on the list", bound=COUNTS)
    n_codes: float = number("codes that at least one patient has, all modes", bound=COUNTS)
    n_codes_left_out: float = number("those that are not on the list", bound=COUNTS)


@dataclass(frozen=True)
class NoisedCodeCounts(Release):
    """A histogram of codes to which every patient adds a vector of length 1."""

    shares: Floats = array(
        "sum over patients of 1 / sqrt(number of the patient's codes) at each of their codes",
        ("c",),
        bound=PATIENTS,
        sensitivity=1.0,
    )


@dataclass(frozen=True)
class Cooccurrence(Release):
    """Co-occurrence of codes: the sum of patients' tensors at unit length, summed over all but two modes."""

    marginals: Floats = array(
        "how often each pair of codes occurs together, each patient counting with length 1 at most",
        ("p",),
        bound=PATIENTS,
    )


@dataclass(frozen=True)
class ClippedCooccurrence(Release):
    """Co-occurrence of all agreed codes, however rare, for a differentially private start."""

    marginals: Floats = array(
        "how often each pair of codes occurs together, each patient counting with length 1 at most",
        ("p",),
        bound=PATIENTS,
        sensitivity=1.0,
    )


@dataclass(frozen=True)
class Directions(Message):
    """Directions over all codes, with modes stacked."""

    directions: Floats = array("directions", ("c", "p"))


@dataclass(frozen=True)
class CooccurrenceProducts(Release):
    """The symmetric matrix of pairwise marginals times directions."""

    products: Floats = array("pairwise marginals times directions", ("c", "p"), bound=PATIENTS)


@dataclass(frozen=True)
class Update(Message):
    """One factor matrix that has changed, and the mode whose sums are wanted."""

    updated: str = text("mode whose factor has changed")
    factor: Floats = array("its factor matrix, columns of unit length", ("c", "r"))
    wanted: str = text("mode whose sums are wanted")


@dataclass(frozen=True)
class UpdateAndFit(Update):
    """Factors for which the site fits its memberships again."""

    n_sweeps: int = count("sweeps of coordinate descent")
    sparsity: float = number("weight of the group lasso, times the root of the site's patients; 0 for none")
    nonnegative: bool = flag("memberships are nonnegative")


@dataclass(frozen=True)
class Products(Release):
    """A site's tensor times memberships and the other factors."""

    products: Floats = array(
        "by code and phenotype, counts times memberships and the other factors; under a mask few patients may be "
        "behind a cell",
        ("c", "r"),
        bound=PRODUCTS,
    )


@dataclass(frozen=True)
class ProductsAndGram(Products):
    """The same with the memberships' second moments and the size of the tensor."""

    gram: Floats = array("sums over patients of products of two memberships", ("r", "r"), bound=PRODUCTS)
    n_entries: float = number("entries above zero", bound=COUNTS)
    squares: float = number("sum of the squared entries", bound=COUNTS)


@dataclass(frozen=True)
class Ratios(Release):
    """A site's counts over their predictions, times memberships and the other factors."""

    products: Floats = array(
        "counts over predictions, times memberships and all factors but one", ("c", "r"), bound=PRODUCTS
    )


@dataclass(frozen=True)
class RatiosAndTotals(Ratios):
    """The same with the memberships' sums and the loss."""

    totals: Floats = array("sum of the memberships", ("r",), bound=PRODUCTS)
    loss: float = number("sum over all cells of prediction minus count times log prediction", bound=COUNTS)
    n_entries: float = number("entries above zero", bound=COUNTS)


@dataclass(frozen=True)
class FitLocally(Factors):
    """One round of local fitting near the global factors."""

    n_passes: int = count("local passes, the paper's tau")
    elastic_penalty: float = number("strength of the elastic term, in units of the mean curvature")
    sparsity: float = number("weight of the group lasso, times the root of the site's patients; 0 for none")
    n_sweeps: int = count("sweeps of coordinate descent for the memberships")


@dataclass(frozen=True)
class WeightedFactors(Release):
    """A site's factors as terms of a weighted mean, with the squared length of the memberships as weight."""

    factors: dict[str, Floats] = arrays("factor matrices times the weights", ("c", "r"), bound=PRODUCTS)
    weights: Floats = array("squared length of the memberships' columns", ("r",), bound=PRODUCTS)


@dataclass(frozen=True)
class Wanted(Factors):
    """Public factors, and the mode for which sums are wanted."""

    wanted: str = text("mode whose sums are wanted")
    n_sweeps: int = count("sweeps of coordinate descent for the memberships, all patients from the same start")


@dataclass(frozen=True)
class ClipProducts(Wanted):
    """The same, with the bounds of one patient's contribution."""

    largest_product: float = number("longest product of one patient; longer ones are shortened")
    largest_gram: float = number("largest squared length of one patient's memberships; larger ones are shortened")


@dataclass(frozen=True)
class ClippedProducts(Release):
    """Sums for the update of a factor, each patient clipped, in units of the clip."""

    products: Floats = array(
        "tensor times memberships and all factors but one", ("c", "r"), bound=PATIENTS, sensitivity=1.0
    )
    gram: Floats = array("memberships times memberships, upper triangle", ("g",), bound=PATIENTS, sensitivity=1.0)


@dataclass(frozen=True)
class PassPatients(Wanted):
    """Passes of stochastic gradient descent over patients for one factor."""

    n_passes: int = count("passes over the site's patients, the paper's tau")
    step: float = number("learning rate, the paper's eta; at most 1")
    largest_product: float = number("longest product of one patient; longer ones are shortened")
    seed: int = count("public number that the order of the patients depends on, in addition to their records")


@dataclass(frozen=True)
class LocalFactor(Release):
    """Local factor of one mode as a term of a mean."""

    factor: Floats = array("factor matrix, columns of length 1 at most", ("c", "r"), bound=2.0)


@dataclass(frozen=True)
class ClippedFactor(Release):
    """Local factor of one mode in units of its sensitivity."""

    factor: Floats = array("factor matrix over the reach of one patient", ("c", "r"), bound=PATIENTS, sensitivity=1.0)


@dataclass(frozen=True)
class Noised(Message):
    """A noised sum in the coordinator's checkpoint, so that a resumed run does not request it again."""

    values: Floats = array("noised sum over sites", ("p",))
    noise_sd: float = number("standard deviation of the noise in each of them")


@dataclass(frozen=True)
class PrivateState(Factors):
    """State of a private fit between releases."""

    weights: Floats = array("length of the memberships of each phenotype, from noised sums", ("r",))


@dataclass(frozen=True)
class Final(Factors):
    """Fitted factors, for the errors on the sites' patients."""

    refit: bool = flag("fit the memberships to these factors; otherwise those of the last round are used")
    keep: bool = flag("the site is to remember these factors and memberships")
    poisson: bool = flag("memberships are fitted under the Poisson likelihood")
    n_sweeps: int = count("sweeps of coordinate descent")
    sparsity: float = number("weight of the group lasso, times the root of the site's patients; 0 for none")
    threshold: float = number("share of a patient's total from which a membership counts")


@dataclass(frozen=True)
class Penalty(Message):
    """Settings of the fit of memberships."""

    sparsity: float = number("weight of the group lasso, times the root of the site's patients; 0 for none")


@dataclass(frozen=True)
class Profile(Release):
    """Size of each phenotype at one site, on request."""

    lengths: Floats = array("root mean square membership; 0 where few patients have any", ("r",))
