"""Terms under which a site answers, as its ledger records them: a run is taken up under the same ones or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from multicentre.federation.errors import IntegrityError
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.policy import Policy

_TERMS = "terms"
_PLACES = ("account", "cohorts")


def terms_of(policy: Policy, **others: Any) -> dict[str, Any]:
    """Return the terms of a run at one site as plain values: its policy, and what else holds.

    Account and cohorts appear as hashes: where a site keeps its files does not go into its ledger.

    Examples
    --------
    >>> terms_of(Policy(min_patients=20), secure_sum=True)["policy"]["min_patients"]
    20
    """
    values = dataclasses.asdict(policy)
    places = {name: values[name] for name in _PLACES if values[name] is not None}
    values |= {name: hashlib.sha256(place.encode()).hexdigest() for name, place in places.items()}
    plain: dict[str, Any] = json.loads(json.dumps({**others, "policy": values}))
    return plain


def note_terms(ledger: Ledger, terms: Mapping[str, Any]) -> None:
    """Have a ledger's next entry record the terms, unless an earlier one says the same."""
    if ledger.last(_TERMS) != terms:
        ledger.note(**{_TERMS: terms})


def check_terms(ledger: Ledger, terms: Mapping[str, Any], site: str) -> None:
    """Check that a run is taken up under the terms that a site's ledger records.

    Raises
    ------
    IntegrityError
        The terms are others; the message names them.
    """
    recorded = ledger.last(_TERMS)
    if recorded is None or recorded == terms:
        return
    raise IntegrityError(
        f"the run must be taken up under the terms that it began with; {'; '.join(describe_changes(recorded, terms))}",
        where=f"{site}, ledger",
        mend="Undo the change to take the run up, or start a new run with another folder.",
    )


def describe_changes(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """Yield what differs between two tables of terms, one text per value.

    Examples
    --------
    >>> list(describe_changes({"privacy": {"secure_sum": True}}, {"privacy": {"secure_sum": False}}))
    ['privacy.secure_sum was true when the run began and is false now']
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from describe_changes(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield f"{name} was {_shown(before)} when the run began and is {_shown(now)} now"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST = 80  # a digest fits; a long list of columns would hide the rest of the message
