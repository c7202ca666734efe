"""Check of releases that hold no patient's values, only counts of records or keyed hashes of identifiers.

A site's policy can compare the patients of any two answers (``min_difference``). Only a release that declares
``without_values = True`` is exempt from the comparison with all other answers: it is compared with releases of its
own class. The kind of a field is no proof (a count may be a sum in fixed point, and the difference of two tables over
the levels of a column is a patient's row), so a release has to declare it, and this check bounds what it may hold.
"""

from __future__ import annotations

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import Declaration, Message, place

# By convention the letter for the columns of the data: an entry per column, not per level or value of a column.
_PER_COLUMN = ("d",)


def check_without_values(kind: type[Message], *, individual: bool = False) -> None:
    """Check that the fields of a release that declares ``without_values`` can be counts or keyed hashes.

    Raises
    ------
    MessageError
        A field is neither public, nor an unsigned count without names, nor an array that counts records per column,
        nor, if the release is about single patients, an array of bytes.

    Examples
    --------
    >>> from multicentre.data.missing.values import Gaps
    >>> check_without_values(Gaps)
    """
    for name, field in kind.declarations().items():
        if not (field.public or _is_count(field) or (individual and _is_hash(field))):
            raise MessageError(
                "a field of a release without values must be a count or a count per column",
                where=place(kind, name),
                hint="Remove without_values, so that min_difference compares the release with every other answer.",
            )


def _is_count(field: Declaration) -> bool:
    if field.kind == "count":
        return not (field.signed or field.keyed)
    return field.kind == "array" and field.counts and field.is_whole and field.shape == _PER_COLUMN


def _is_hash(field: Declaration) -> bool:
    return field.kind == "array" and field.dtype == "u1"
