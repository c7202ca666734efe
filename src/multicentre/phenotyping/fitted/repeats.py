"""Repeated fits over seeds and privacy budgets, to choose a rank or an epsilon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from multicentre.core import side_by_side
from multicentre.core.consortium import Consortium as AnyFederation
from multicentre.data.events.tensor import EventTensor
from multicentre.errors import ConfigurationError
from multicentre.federation import Federation
from multicentre.phenotyping.fitted.model import PhenotypeModel, Phenotypes
from multicentre.phenotyping.scores import (
    factor_match_score,
    null_match_score,
    permuted_match_score,
    stability,
)

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Sites = Mapping[str, EventTensor]


def seed_stability(
    estimator: PhenotypeModel,
    sites: AnyFederation | Sites | Sequence[AnyFederation],
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    *,
    resample: bool = True,
) -> pd.DataFrame:
    """Fit once per seed, each time to other patients and from other starts, and return how well phenotypes recur.

    Phenotypes are those of the fit that is most like the others. One whose match falls to the null line depends on the
    start or on few patients; a rank at which many do is too large.

    Each fit draws its random starts with its seed. Patients differ between fits where `sites` allows it: a mapping of
    data is resampled with replacement, within every site; a sequence of federations gives one set of patients per fit,
    such as ``plan.train(fold)`` of a `FoldPlan` for every fold. On one federation patients cannot be resampled, so fits
    differ by their starts only. The start from co-occurrences, which would be the same in each, is then left out.

    Parameters
    ----------
    estimator : PhenotypeModel
        Copies of it are fitted, with the seed as `random_state`.
    sites : mapping of str to EventTensor, Federation or sequence of Federation
        Every fit calls the sites of a federation again.
    seeds : sequence of int, default (0, 1, 2, 3, 4)
        Two or more; as many as there are federations in a sequence.
    resample : bool, default True
        Draw as many patients as a site has, with replacement (bootstrap), if `sites` is a mapping. If False, fits to a
        mapping differ by their starts only, as on a federation.

    Returns
    -------
    DataFrame
        One row per phenotype: ``weight``, ``match`` (mean similarity to its partners in the other fits, 0 to 1),
        ``null`` (score of the same phenotypes with shuffled codes) and ``null_dense`` (score of dense random factors).
        ``attrs`` has the ``score`` over all pairs, the ``seed`` of the fit, and ``varied``: ``"starts"`` or ``"starts
        and patients"``.

    Raises
    ------
    ConfigurationError
        There are fewer than two seeds, or not one per federation; or the estimator has an `epsilon` and the sites are
        those of a federation: every fit would spend their budget.

    Examples
    --------
    >>> import multicentre as mc
    >>> sizes = {"procedure": 12, "diagnosis": 15}
    >>> sites = mc.datasets.simulate_planted(800, sizes, n_phenotypes=3, n_sites=2, random_state=0).by_site()
    >>> found = mc.phenotyping.seed_stability(mc.phenotyping.DPFact(3, tol=0.01), sites, seeds=(0, 1))
    >>> found.attrs["varied"], bool(found.attrs["score"] > 0.8)
    ('starts and patients', True)
    """
    import pandas as pd

    if len(set(seeds)) < 2:
        raise ConfigurationError(f"seeds must be two or more different integers; got {seeds!r}", where="seeds")
    is_data = isinstance(sites, Mapping)
    epsilon = estimator.get_params(deep=False).get("epsilon")
    if not is_data and epsilon is not None:
        raise ConfigurationError(
            f"epsilon must be None on a federation, since every fit would spend the sites' privacy budget; "
            f"got {epsilon}",
            where="epsilon",
            hint="Choose the rank on simulated data, passed as a mapping of site to data.",
        )
    varies_patients = (is_data and resample) or isinstance(sites, Sequence)
    base = clone(estimator) if varies_patients else _with_drawn_starts(clone(estimator))
    samples = _samples(sites, seeds, resample=resample)
    works = [
        partial(_fitted, clone(base).set_params(random_state=seed), sample)
        for seed, sample in zip(seeds, samples, strict=True)
    ]
    # Fits to data would each hold a federation in memory.
    fits = [work() for work in works] if is_data else side_by_side.run(works)
    codes = _all_codes(fits)
    compared = stability([_over(fit, codes) for fit in fits])
    central = fits[compared.most_central]
    frame = pd.DataFrame(
        {"weight": central.weights_, "match": compared.by_component, **_null_lines(_over(central, codes))},
        index=pd.RangeIndex(1, central.rank_ + 1, name="phenotype"),
    )
    varied = "starts and patients" if varies_patients else "starts"
    frame.attrs |= {"score": compared.score, "seed": seeds[compared.most_central], "varied": varied}
    return frame


def _with_drawn_starts(estimator: PhenotypeModel) -> PhenotypeModel:
    """Return the estimator with random starts only, if it has others."""
    return estimator.set_params(init="random") if "init" in estimator.get_params(deep=False) else estimator


def _samples(
    sites: AnyFederation | Sites | Sequence[AnyFederation], seeds: Sequence[int], *, resample: bool
) -> list[AnyFederation | Sites]:
    """Return the sites of the fit of each seed."""
    if isinstance(sites, Mapping):
        return [resample_patients(sites, seed) if resample else sites for seed in seeds]
    if isinstance(sites, AnyFederation):
        return list(sites.branches(len(seeds)))
    if len(sites) != len(seeds):
        raise ConfigurationError(
            f"sites must be one federation per seed, {len(seeds)}; got {len(sites)}", where="sites"
        )
    # Folds of one plan count their fits together; the name of a fit must not depend on which fit begins again first.
    return [branch for one in sites for branch in one.branches(1)]


def resample_patients(sites: Sites, seed: int) -> dict[str, EventTensor]:
    """Draw as many patients as every site has, with replacement.

    Examples
    --------
    >>> data = EventTensor([[0, 0, 0], [1, 0, 0]], [1.0, 2.0], {"procedure": ["p1"], "diagnosis": ["d1"]})
    >>> resample_patients({"lyon": data}, 1)["lyon"].counts.tolist()
    [1.0, 2.0]
    >>> resample_patients({"lyon": data}, 2)["lyon"].counts.tolist()
    [2.0, 1.0]
    """
    drawn = {}
    for place, (site, data) in enumerate(sites.items()):
        rows = np.random.default_rng([seed, place]).integers(len(data), size=len(data))
        first = np.searchsorted(data.coordinates[:, 0], np.arange(len(data) + 1))
        n_entries = np.diff(first)[rows]
        entries = np.repeat(first[rows] - np.cumsum(n_entries) + n_entries, n_entries) + np.arange(n_entries.sum())
        coordinates = data.coordinates[entries].copy()
        coordinates[:, 0] = np.repeat(np.arange(len(rows)), n_entries)
        drawn[site] = EventTensor(coordinates, data.counts[entries], data.codes, n_patients=len(rows))
    return drawn


def privacy_curve(
    fit: PhenotypeModel | Callable[[float | None], Phenotypes],
    sites: Sites | None = None,
    epsilons: Sequence[float] = (8.0, 4.0, 2.0, 1.0, 0.5),
    *,
    n_repeats: int = 1,
    reference: Mapping[str, Floats] | None = None,
) -> pd.DataFrame:
    """Fit once per epsilon and return the match of the phenotypes with those of a fit without noise.

    There are ``n_repeats`` fits per epsilon, and one without noise if no reference is passed. Use simulated data: on
    patients' records every fit would spend budget, and so would the choice among them. Differences of 0.05 are within
    the spread of single fits; compare means over four or more.

    Parameters
    ----------
    fit : PhenotypeModel or callable
        An estimator that is not fitted, with a `vocabulary`; or a function that receives an epsilon, None for no noise,
        and returns fitted phenotypes.
    sites : mapping of str to EventTensor, optional
        Simulated patients by site; needed for an estimator.
    epsilons : sequence of float, default (8, 4, 2, 1, 0.5)
        Privacy budgets to compare, one row each.
    n_repeats : int, default 1
        Fits per epsilon, each with new noise. A single fit does not show the spread.
    reference : mapping of str to array of shape (codes, r), optional
        Factors to compare with over the codes of the fit, for example those of a simulation. By default those of a
        fit without noise.

    Returns
    -------
    DataFrame
        One row per epsilon: ``match`` (mean factor match score to the reference, 0 to 1), ``lowest``, ``highest``,
        ``null`` (the reference with shuffled codes) and ``null_dense`` (dense random factors).

    Raises
    ------
    ConfigurationError
        An estimator without data by site, no epsilon, or no repeat.
    """
    import pandas as pd

    run = _runner(fit, sites)
    if not epsilons or n_repeats < 1:
        raise ConfigurationError(
            f"epsilons must be at least one number, and n_repeats at least 1; got {epsilons!r} and {n_repeats}",
            where="privacy_curve",
        )
    fits = {float(epsilon): [run(epsilon) for _ in range(n_repeats)] for epsilon in epsilons}
    every = [one for fits_of_epsilon in fits.values() for one in fits_of_epsilon] + (
        [run(None)] if reference is None else []
    )
    codes = _all_codes(every)
    truth = _over(every[-1], codes) if reference is None else reference
    scores = [
        [factor_match_score(truth, _over(one, codes)).score for one in fits_of_epsilon]
        for fits_of_epsilon in fits.values()
    ]
    return pd.DataFrame(
        {
            "match": [float(np.mean(fits_of_epsilon)) for fits_of_epsilon in scores],
            "lowest": [min(fits_of_epsilon) for fits_of_epsilon in scores],
            "highest": [max(fits_of_epsilon) for fits_of_epsilon in scores],
            **_null_lines(truth),
        },
        index=pd.Index(list(fits), name="epsilon"),
    )


def _runner(
    fit: PhenotypeModel | Callable[[float | None], Phenotypes], sites: Sites | None
) -> Callable[[float | None], Phenotypes]:
    if not isinstance(fit, PhenotypeModel):
        return fit
    if not isinstance(sites, Mapping):
        raise ConfigurationError(
            f"sites must be a mapping of site to data if an estimator is passed; got {type(sites).__name__}",
            where="sites",
            hint="Use simulated data: every fit of real sites would spend their privacy budget.",
        )
    return lambda epsilon: _fitted(clone(fit).set_params(epsilon=epsilon), sites)


def _fitted(estimator: PhenotypeModel, sites: AnyFederation | Sites) -> PhenotypeModel:
    if isinstance(sites, AnyFederation):
        return estimator.fit(sites)
    with Federation.in_process(sites) as session:
        return estimator.fit(session)


def _all_codes(fits: Sequence[Phenotypes]) -> dict[str, list[str]]:
    return {mode: sorted({code for one in fits for code in one.codes_[mode]}) for mode in fits[0].codes_}


def _over(fit: Phenotypes, codes: Mapping[str, Sequence[str]]) -> dict[str, Floats]:
    """Return the factors over other codes: those that the fit does not have get weight 0."""
    factors = {}
    for mode, names in codes.items():
        rows = dict(zip(fit.codes_[mode], fit.factors_[mode], strict=True))
        zeros = np.zeros(fit.rank_)
        factors[mode] = np.array([rows.get(name, zeros) for name in names])
    return factors


def _null_lines(factors: Mapping[str, Floats]) -> dict[str, float]:
    sizes = [len(factor) for factor in factors.values()]
    rank = next(iter(factors.values())).shape[1]
    return {"null": permuted_match_score(factors), "null_dense": null_match_score(sizes, rank)}
