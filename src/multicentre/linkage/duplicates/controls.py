"""Identifiers of nobody: test patients that every site registered, so that broken identifiers can be told from none.

A coordinator that could ask whether an identifier is known at a site would learn who is a patient there. So a site
takes for a control only what cannot be a person's identifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from multicentre.federation.errors import ConfigurationError, RefusedByPolicy
from multicentre.privacy.normalisation import normalise

MOST_CONTROLS = 20
_RESERVED = {
    "identifier": ("TESTPATIENT", "begin with TESTPATIENT"),
    "name": ("TESTPATIENT", "begin with TESTPATIENT"),
    "nhs-number": ("999", "begin with 999, as test numbers of the NHS do"),
    "date": ("21", "are dates from 2150 on"),
}


def normalise_controls(controls: Sequence[str], kind: str) -> list[str]:
    """Return controls as `normalise` writes them.

    Parameters
    ----------
    controls : sequence of str
        At most 20; dates in ISO 8601.
    kind : str
        Kind of the identifiers; for "nir" and "combined" there are none.

    Raises
    ------
    RefusedByPolicy
        One may be a person's, they are too many, or the kind has none.
    ConfigurationError
        The kind is unknown.

    Examples
    --------
    >>> normalise_controls(["Test-Patient 01"], "identifier"), normalise_controls(["2199-05-01"], "date")
    (['TESTPATIENT01'], ['2199-05-01'])
    """
    named: Any = kind
    texts = normalise(controls, named)
    if not controls:
        return []
    if kind not in _RESERVED:
        raise RefusedByPolicy(f"identifiers of kind {kind} have no controls", where="controls")
    begins, means = _RESERVED[kind]
    reserved = [text is not None and text.startswith(begins) and _is_late(text, kind) for text in texts]
    if not all(reserved) or len(controls) > MOST_CONTROLS:
        raise RefusedByPolicy(
            "a control could be a person's identifier" if not all(reserved) else "too many controls",
            where="controls",
            mend=f"Name at most {MOST_CONTROLS} test patients; their identifiers of kind {kind} {means}.",
        )
    return [text for text in texts if text is not None]


def check_controls(found: Iterable[int], controls: Sequence[str], n_sites: int) -> dict[str, int]:
    """Return at how many sites each control is known.

    Raises
    ------
    ConfigurationError
        One is not known everywhere, so that identifiers cannot be compared.
    """
    sites = dict(zip(controls, map(int, found), strict=True))
    lacking = {control: n for control, n in sites.items() if n < n_sites}
    if lacking:
        told = ", ".join(f"{control} at {n}" for control, n in lacking.items())
        raise ConfigurationError(
            f"controls are not known at all {n_sites} sites ({told}), so that equal persons may have different "
            "identifiers there and no rate can be told",
            where="controls",
            mend="Register them everywhere, and hand over identifiers as they were before any pseudonym or date shift.",
        )
    return sites


def _is_late(text: str, kind: str) -> bool:
    return kind != "date" or text >= "2150"
