"""Sites behind each view and column of a masked sum.

If one site alone has a view or a column, a masked sum of it is that site's own value. Every site therefore states,
with its signed keys, the views that it has and the columns in which it has too few entries. The coordinator forwards
these lists and cannot change them. Before a site computes anything, it counts the sites behind each field to which it
contributes, and refuses the sum if there are fewer than its policy's ``min_sites_in_sum``. Sites that may be lost, down
to the threshold of the sum, do not count.

A site that lacks a field adds zeros there and does not refuse. The only site that has a field refuses for itself, and a
site that merely claims to have one cannot end the sums of the others.

A field is a view, or a column of a view or of a table. A level of a category, a code, a group and a bin are cells of a
field: in these a masked total may rest on one site, and on one patient.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from multicentre.federation.errors import MessageError, name_some
from multicentre.privacy.policy import ASK_STEWARD, Refusal

_HINT = (
    "Leave the view or column out at every site, or bring in more sites that have it. With a quorum of all sites "
    "none of them can be missing from the sum."
)
_MOST_NAMED = 5  # fields in a message; a longer list hides the rest of it
_LONGEST = 2**24  # of a list as text: 100,000 columns with names of 100 letters are far below


class Field(NamedTuple):
    """View, or column of a view. A column of a table has no view."""

    view: str
    column: str = ""

    def __str__(self) -> str:
        parts = [f"view {self.view!r}"] if self.view else []
        return ", ".join(parts + ([f"column {self.column!r}"] if self.column else []))


class SitesBehind(NamedTuple):
    """Sites that have a field, and the smallest number of them that a sum may rest on."""

    fewest: int
    sites: tuple[str, ...]


@dataclass(frozen=True)
class HeldFields:
    """Views and columns that one site has.

    Everything but `empty` is signed and sent.

    Parameters
    ----------
    views : tuple of str
        Views of the site; empty for data without views.
    sparse : mapping of str to tuple of str
        By view ("" for a table), the columns in which fewer patients have an entry than the policy requires.
    empty : mapping of str to tuple of str
        By view, the columns without any entry.

    Examples
    --------
    >>> held = HeldFields(("blood",), {"blood": ("crp",)})
    >>> HeldFields.from_text(held.to_text(), "lyon") == held
    True
    """

    views: tuple[str, ...] = ()
    sparse: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    empty: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, data: Any, least: int) -> Self:
        """Return the fields of a site's data; a column needs entries in `least` records, at least one."""
        below = getattr(data, "columns_below", None)
        views = tuple(getattr(data, "views", ()))
        return cls(views) if below is None else cls(views, below(max(least, 1)), below(1))

    def adds_to(self, place: Field) -> bool:
        """Return whether the site adds more than zeros to a field of a sum."""
        is_of_other_data = bool(self.views) and not place.view
        return not is_of_other_data and _has_column(HeldFields(self.views, self.empty), place)

    def to_text(self) -> str:
        """Return the lists as one text, which the site signs."""
        return json.dumps({"views": self.views, "sparse": self.sparse}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str, site: str) -> Self:
        """Read the text that :meth:`to_text` wrote at a site.

        Raises
        ------
        MessageError
            The text does not contain such lists.
        """
        try:
            if len(text) > _LONGEST:
                raise ValueError
            lists = json.loads(text)
            views, sparse = (
                _names(lists["views"]),
                {view: _names(held_fields) for view, held_fields in lists["sparse"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise MessageError("the list of the fields of a site cannot be read", where=site) from None
        return cls(views, sparse)


def holders_of_fields(held: Mapping[str, HeldFields]) -> dict[Field, tuple[str, ...]]:
    """Return the sites that have each field which some site lacks.

    Examples
    --------
    >>> held = {"lyon": HeldFields(("blood", "scan")), "oslo": HeldFields(("blood",), {"blood": ("crp",)})}
    >>> {str(field): sites for field, sites in holders_of_fields(held).items()}
    {"view 'scan'": ('lyon',), "view 'blood', column 'crp'": ('lyon',)}
    """
    views = dict.fromkeys(view for held_fields in held.values() for view in held_fields.views)
    sparse = dict.fromkeys(
        Field(view, name)
        for held_fields in held.values()
        for view in held_fields.sparse
        for name in held_fields.sparse[view]
    )
    holders = {
        Field(view): tuple(site for site, held_fields in held.items() if view in held_fields.views) for view in views
    }
    for column in sparse:
        holders[column] = tuple(site for site, held_fields in held.items() if _has_column(held_fields, column))
    return {place: sites for place, sites in holders.items() if len(sites) < len(held)}


def sites_behind(held: Mapping[str, HeldFields], peers: Sequence[str], threshold: int) -> dict[Field, SitesBehind]:
    """Return the sites that stand behind each field of a masked sum that some site lacks.

    Parameters
    ----------
    held : mapping of str to HeldFields
        By site.
    peers : sequence of str
        Sites that receive the request.
    threshold : int
        Number of sites that suffice for the sum; the others may be lost.

    Notes
    -----
    A field that no site has is left out. If all sites of a field are lost, its sum is 0.

    Examples
    --------
    >>> held = {site: HeldFields(("blood", "scan") if site == "lyon" else ("blood",)) for site in ("lyon", "oslo")}
    >>> {str(field): behind.fewest for field, behind in sites_behind(held, ("lyon", "oslo"), 2).items()}
    {"view 'scan'": 1}
    """
    here = {site: held.get(site, HeldFields()) for site in dict.fromkeys(peers)}
    n_lost = max(len(here) - threshold, 0)
    holders = holders_of_fields(here)
    return {place: SitesBehind(max(len(sites) - n_lost, 1), sites) for place, sites in holders.items() if sites}


def find_lone_fields(behind: Mapping[Field, SitesBehind], least: int) -> Refusal | None:
    """Return the refusal of a masked sum with fields behind which fewer than `least` sites stand.

    Examples
    --------
    >>> behind = {Field("scan"): SitesBehind(1, ("lyon",)), Field("", "crp"): SitesBehind(2, ("lyon", "oslo"))}
    >>> find_lone_fields(behind, 2).reason
    "at least 2 sites must stand behind each view and column of a masked sum; got 1 for view 'scan' (at lyon)"
    """
    lone = [f"{n} for {place} (at {name_some(sites)})" for place, (n, sites) in behind.items() if n < least]
    if not lone:
        return None
    more = f" and {len(lone) - _MOST_NAMED} more" if len(lone) > _MOST_NAMED else ""
    listed = ", ".join(lone[:_MOST_NAMED])
    reason = f"at least {least} sites must stand behind each view and column of a masked sum; got {listed}{more}"
    return Refusal("min_sites_in_sum", reason, hint=f"{_HINT} {ASK_STEWARD}")


def _has_column(held_fields: HeldFields, column: Field) -> bool:
    has_view = not column.view or column.view in held_fields.views
    return has_view and column.column not in held_fields.sparse.get(column.view, ())


def _names(listed: object) -> tuple[str, ...]:
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise TypeError
    return tuple(listed)
