"""Ranges of the parameters of Fed-mv-PPCA, and rules on several of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from multicentre.data.schema import MultiViewSchema
from multicentre.errors import ConfigurationError, DisclosureWarning
from multicentre.estimator.parameters import SEED, Flag, Integer, OneOf, ParameterRanges, Real, Where
from multicentre.multiview.agreement import SCALES, Agreement


def is_candidates(value: object) -> bool:
    """Return whether a value is a sequence of one or more numbers of latent dimensions."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) > 0
        and all(Integer(1).accepts(each) for each in value)
    )


PARAMETER_RANGES: ParameterRanges = {
    "n_components": (Integer(1), Where("a non-empty sequence of such integers", is_candidates)),
    "max_components": (None, Integer(1)),
    "method": OneOf("invariant", "hierarchical"),
    "max_iter": Integer(1),
    "n_local_iter": Integer(1),
    "tol": Real(0),
    "scale": OneOf(*SCALES),
    "noise": OneOf("isotropic", "diagonal"),
    "ard": Flag(),
    "waic": Flag(),
    "ddof": Integer(0, 1),
    # Infinity stands for maximum likelihood, without a prior of the loadings.
    "loadings_sd": (Real(0, open="low"), Where("inf", lambda value: isinstance(value, float) and value == np.inf)),
    "case_mix_weight": Real(0),
    "site_intercepts": Flag(),
    "small_views": Flag(),
    "random_state": SEED,
    # Wide ends, between which the noise and its square are normal doubles; usual values are 0.5 to 10.
    "epsilon": (None, Real(1e-6, 1e12)),
    # Usual values are far below one over the number of patients. With 0, Gaussian noise gives no guarantee.
    "delta": Real(1e-300, 1e-2),
    "reference": (None, Where("a mapping of views to centre and spread", lambda value: isinstance(value, Mapping))),
    # Ends between which the square of the length is a normal double.
    "clip": (None, Real(1e-100, 1e100)),
}


def check_dimensions(n_components: int, schema: MultiViewSchema, *, small_views: bool) -> None:
    """Raise ConfigurationError unless the latent dimensions are fewer than the columns that they explain."""
    sizes = schema.sizes
    narrow = [view for view, size in sizes.items() if n_components >= size]
    if narrow and not small_views:
        raise ConfigurationError(
            f"n_components must be below the {sizes[narrow[0]]} columns of the view; got {n_components}",
            where=f"n_components, view {narrow[0]!r}",
            hint=f"Use at most {min(sizes.values()) - 1}, leave the view out, or set small_views=True: the paper "
            "states the limit, but the joint model does not need it.",
        )
    if n_components >= schema.n_features:
        raise ConfigurationError(
            f"n_components must be below the {schema.n_features} columns of all views; got {n_components}",
            where="n_components",
            hint="Use fewer latent dimensions than columns.",
        )


def warn_of_single_site_views(agreement: Agreement, n_sites: int) -> None:
    """Warn of views that only one site has, whose sums over sites are the values of that site."""
    # Counts of sites are decoded from masked sums: halfway between one site and two.
    single_site_views = [view for view, n in zip(agreement.views, agreement.sites, strict=True) if n < 1.5]
    if single_site_views and n_sites > 1:
        warnings.warn(
            f"only one site has the view {', '.join(single_site_views)}: sums over sites show the values of that site.",
            DisclosureWarning,
            stacklevel=9,
        )


def check_private_fit(
    *,
    method: str,
    waic: bool,
    n_components: object,
    reference: Mapping[str, Any] | None,
) -> None:
    """Raise ConfigurationError unless the parameters go together with `epsilon`."""
    if method != "invariant":
        raise ConfigurationError(
            f"method must be 'invariant' with epsilon; got {method!r}",
            where="method",
            hint='Use method="invariant": one patient can move the parameters of a site by any distance, so that no '
            "noise covers them.",
        )
    if waic or isinstance(n_components, Sequence):
        name = "waic" if waic else "n_components"
        raise ConfigurationError(
            f"{name} must be {'False' if waic else 'an integer'} with epsilon; got {waic if waic else n_components!r}",
            where=name,
            hint="Set one number of latent dimensions, and ard=True to switch some off: the WAIC needs further "
            "releases of the sites.",
        )
    _check_reference(reference)


def check_without_privacy(**private_parameters: object) -> None:
    """Raise ConfigurationError if a parameter is set that has an effect only with `epsilon`."""
    for name, value in private_parameters.items():
        if value is not None:
            raise ConfigurationError(
                f"{name} must be None without epsilon; got an object of type {type(value).__name__}",
                where=name,
                hint="Set epsilon too.",
            )


def _check_reference(reference: Mapping[str, Any] | None) -> None:
    if not reference:
        raise ConfigurationError(
            f"reference must hold a public centre and spread of each column with epsilon; got {reference!r}",
            where="reference",
            hint='Set reference={"view": {"centre": [...], "spread": [...]}}, from reference ranges of the laboratory '
            "or a published cohort and never from the data of these sites.",
        )
    for view, entry in reference.items():
        if not (isinstance(entry, Mapping) and set(entry) == {"centre", "spread"}):
            names = ", ".join(map(str, entry)) if isinstance(entry, Mapping) else type(entry).__name__
            raise ConfigurationError(
                f"reference of a view must be a mapping with the keys centre and spread; got {names}",
                where=f"reference, view {view!r}",
                hint='Set {"centre": [...], "spread": [...]}, one number per column.',
            )
        for key, values in entry.items():
            where = f"reference, view {view!r}, {key}"
            if not (isinstance(values, list | tuple) and all(type(value) in (int, float) for value in values)):
                raise ConfigurationError(
                    f"{key} must be a list of numbers; got {type(values).__name__}",
                    where=where,
                    hint="Convert an array with tolist().",
                )
            for value in values:
                if not (abs(value) < np.inf and (key == "centre" or value > 0)):
                    expected = "finite" if key == "centre" else "finite and above 0"
                    raise ConfigurationError(f"each {key} must be {expected}; got {value!r}", where=where)
