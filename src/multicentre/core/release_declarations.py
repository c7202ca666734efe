"""Rules for the fields of a release class, checked when a step is declared.

- A summed release holds fields that can be added, each with a declared range.
- A release about single patients names a permission of the site's policy for every field.
- A release that declares ``without_values = True`` holds no patient's values, only counts of records or keyed hashes of
  identifiers.

The last rule matters because a site's policy can compare the patients of any two answers (``min_difference``). A
release without values is exempt from the comparison with all other answers; it is compared with releases of the same
class. The kind of a field proves nothing (a count may be a sum in fixed point, and the difference of two tables over
the levels of a column is a patient's row), so a release has to declare it, and this rule bounds what it may hold.
"""

from __future__ import annotations

from multicentre.core.messages import Declaration, Message, place
from multicentre.errors import MessageError

# By convention the letter for the columns of the data: one entry per column, not per level or value of a column.
_PER_COLUMN = ("d",)


def check_summable(kind: type[Message]) -> None:
    """Raise MessageError unless every field of `kind` can be added over sites."""
    for name, declaration in kind.declarations().items():
        if declaration.kind in ("text", "texts", "flag") or declaration.dtype == "b1":
            described = f"an array of {declaration.dtype}" if declaration.kind == "array" else declaration.kind
            raise MessageError(
                f"a summed field must be an array of numbers, a number or a count; got {described}",
                where=place(kind, name),
                hint="Send the field in a step that is not summed.",
            )


def check_ranged(kind: type[Message]) -> None:
    """Raise MessageError unless every field of `kind` declares the largest magnitude of a site's value."""
    for name, declaration in kind.declarations().items():
        if declaration.bound is None:
            raise MessageError(
                "a summed field must declare its range; got none",
                where=place(kind, name),
                hint="Declare bound=, the largest magnitude of a site's value.",
            )


def check_permitted(kind: type[Message]) -> None:
    """Raise MessageError unless every field of `kind` names a permission."""
    for name, declaration in kind.declarations().items():
        if not declaration.permission:
            raise MessageError(
                "a field about single patients must name a permission of the policy; got none",
                where=place(kind, name),
                hint="Declare permission=, a switch of the policy.",
            )


def check_without_values(kind: type[Message], *, individual: bool = False) -> None:
    """Check that the fields of a release that declares ``without_values`` can be counts or keyed hashes.

    Raises
    ------
    MessageError
        A field must be public, an unsigned count without names, an array that counts records per column or, if the
        release is about single patients, an array of bytes; got another kind.

    Examples
    --------
    >>> from multicentre.data.missing.values import Gaps
    >>> check_without_values(Gaps)
    """
    for name, field in kind.declarations().items():
        if not (field.public or _is_count(field) or (individual and _is_hash(field))):
            raise MessageError(
                f"a field of a release without values must be a count or a count per column; got {field.dimensions}",
                where=place(kind, name),
                hint="Remove without_values, so that min_difference compares the release with every other answer.",
            )


def _is_count(field: Declaration) -> bool:
    if field.kind == "count":
        return not (field.signed or field.keyed)
    return field.kind == "array" and field.counts and field.is_whole and field.shape == _PER_COLUMN


def _is_hash(field: Declaration) -> bool:
    return field.kind == "array" and field.dtype == "u1"
