"""What a fit of Fed-mv-PPCA refuses or warns of before its first round."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from multicentre.data.schema import MultiViewSchema
from multicentre.federation.errors import ConfigurationError, DisclosureWarning
from multicentre.multiview.agreement import Agreement, check_scale

CHOICES: dict[str, tuple[Any, ...]] = {
    "method": ("invariant", "hierarchical"),
    "noise": ("isotropic", "diagonal"),
    "ddof": (0, 1),
}


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless each of the estimator's parameters is of its kind, and they agree."""
    check_scale(given["scale"])
    for name, choices in CHOICES.items():
        if given[name] not in choices:
            raise ConfigurationError(
                f"{given[name]!r} is not known", where=name, hint=f"Use one of {', '.join(map(str, choices))}."
            )
    for name in ("ard", "waic", "small_views"):
        if not isinstance(given[name], bool | np.bool_):
            raise ConfigurationError(f"{given[name]!r} is neither true nor false", where=name)
    _check_whole_numbers(given)
    if not (_is_number(given["loadings_sd"]) and given["loadings_sd"] > 0):
        raise ConfigurationError(f"{given['loadings_sd']!r} is not a number above 0", where="loadings_sd")
    for name in ("tol", "case_mix_weight"):
        if not (_is_number(given[name]) and 0 <= given[name] < np.inf):
            raise ConfigurationError(f"{given[name]!r} is not a number of at least 0", where=name)
    _check_privacy(given)


def check_dimensions(n_components: int, schema: MultiViewSchema, *, small_views: bool) -> None:
    """Raise ConfigurationError unless the latent dimensions are fewer than the columns that they explain."""
    sizes = schema.sizes
    narrow = [view for view, size in sizes.items() if n_components >= size]
    if narrow and not small_views:
        raise ConfigurationError(
            f"{n_components} latent dimensions are not below the {sizes[narrow[0]]} columns of the view",
            where=f"n_components, view {narrow[0]!r}",
            hint=f"Use at most {min(sizes.values()) - 1}, leave the view out, or say small_views=True: the joint "
            "model does not need the limit, the paper states it.",
        )
    if n_components >= schema.n_features:
        raise ConfigurationError(
            f"{n_components} latent dimensions for {schema.n_features} columns",
            where="n_components",
            hint="Use fewer latent dimensions than columns.",
        )


def warn_of_lonely_views(agreement: Agreement, n_sites: int) -> None:
    """Warn of views whose sums over sites are one site's own."""
    lonely = [view for view, n in zip(agreement.views, agreement.sites, strict=True) if n < 1.5]
    if lonely and n_sites > 1:
        warnings.warn(
            f"only one site has the view {', '.join(lonely)}: sums over sites show that site's own share of it.",
            DisclosureWarning,
            stacklevel=9,
        )


_PRIVACY = (
    ("epsilon", 1e-6, 1e12, "0.5 to 10; without it the fit is not private"),
    ("delta", 1e-300, 1e-2, "well below one over the number of patients, such as 1e-5"),
    ("clip", 1e-100, 1e100, "1.2 times the root of the number of columns, the default"),
)


def _check_privacy(given: Mapping[str, Any]) -> None:
    if given["epsilon"] is None:
        for name in ("reference", "clip"):
            if given[name] is not None:
                raise ConfigurationError("it is of use with epsilon alone", where=name, hint="Give epsilon too.")
        return
    for name, least, largest, usual in _PRIVACY:
        value = given[name]
        if not (_is_number(value) and least <= value <= largest) and not (name == "clip" and value is None):
            raise ConfigurationError(
                f"{value!r} is not a number from {least:g} to {largest:g}", where=name, hint=f"Usual: {usual}."
            )
    _check_fit_is_private(given)
    _check_reference(given["reference"])


def _check_fit_is_private(given: Mapping[str, Any]) -> None:
    if given["method"] != "invariant":
        raise ConfigurationError(
            "a site's own parameters can move by any distance with one patient, so no noise covers them",
            where="method",
            hint='Use method="invariant" with epsilon.',
        )
    if given["waic"] or isinstance(given["n_components"], Sequence):
        raise ConfigurationError(
            "the WAIC is drawn from the rows at the sites, which a private fit does not ask again",
            where="waic" if given["waic"] else "n_components",
            hint="Give one number of latent dimensions, and ard=True to let some switch off.",
        )


def _check_reference(reference: object) -> None:
    if not (isinstance(reference, Mapping) and reference):
        raise ConfigurationError(
            "with epsilon, columns need a centre and a spread that are public",
            where="reference",
            hint='Give reference={"view": {"centre": [...], "spread": [...]}}, from reference ranges of the laboratory '
            "or a published cohort and never from these sites' own data.",
        )
    for view, given in reference.items():
        if not (isinstance(given, Mapping) and set(given) == {"centre", "spread"}):
            raise ConfigurationError(
                "centre and spread are needed, and nothing else",
                where=f"reference, view {view!r}",
                hint='Give {"centre": [...], "spread": [...]}, one number a column.',
            )
        for key, values in given.items():
            where = f"reference, view {view!r}, {key}"
            if not (isinstance(values, list | tuple) and all(type(value) in (int, float) for value in values)):
                raise ConfigurationError("a list of numbers is needed", where=where, hint="Of an array, use tolist().")
            if not all(abs(value) < np.inf and (key == "centre" or value > 0) for value in values):
                raise ConfigurationError("a number is not finite, or a spread is not above 0", where=where)


def _check_whole_numbers(given: Mapping[str, Any]) -> None:
    candidates = given["n_components"]
    several = list(candidates) if isinstance(candidates, Sequence) and not isinstance(candidates, str) else [candidates]
    if not several:
        raise ConfigurationError("there is no candidate", where="n_components", hint="Give numbers such as [2, 3, 4].")
    numbers = [("n_components", q, 1) for q in several] + [("random_state", given["random_state"], 0)]
    numbers += [(name, given[name], 1) for name in ("max_iter", "n_local_iter")]
    for name, value, least in numbers:
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ConfigurationError(f"{value!r} is not a whole number of at least {least}", where=name)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
