"""Sites behind each view and column of a masked sum.

If only one site has a view or a column, a masked sum of it equals that site's value. Every site therefore signs,
together with its keys, a list of its views and of the columns in which it has too few entries. The coordinator forwards
these lists and cannot change them.

Before a site computes anything, it counts the sites behind each field to which it contributes. It refuses the sum if
there are fewer than its policy's ``min_sites_in_sum``. Sites that may be lost, down to the threshold of the sum, do not
count.

A site that lacks a field adds zeros there and does not refuse. Therefore the only site with a field refuses the sum
itself, and a site that falsely claims to have a field cannot prevent the sums of the others.

A field is a view, or a column of a view or of a table. A level of a category, a code, a group and a bin are cells of a
field. A cell of a masked total may come from one site, and from one patient.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from multicentre.errors import MessageError, name_some
from multicentre.privacy.policy import ASK_STEWARD, Refusal

_HINT = (
    "Leave the view or column out at every site, or add sites that have it. With a quorum of all sites, no site can be "
    "missing from the sum."
)
_MAX_NAMED = 5  # fields in a message; a longer list would hide the rest of the message
_LONGEST = 2**24  # letters of a list: 100,000 columns with names of 100 letters fit


class Field(NamedTuple):
    """View, or column of a view. A column of a table has no view."""

    view: str
    column: str = ""

    def __str__(self) -> str:
        parts = [f"view {self.view!r}"] if self.view else []
        return ", ".join(parts + ([f"column {self.column!r}"] if self.column else []))


class SitesBehind(NamedTuple):
    """Sites that have a field, and the smallest number of them behind a sum."""

    fewest: int
    sites: tuple[str, ...]


@dataclass(frozen=True)
class SiteFields:
    """Views and columns that one site has.

    `views` and `sparse` are signed and sent; `empty` is not.

    Parameters
    ----------
    views : tuple of str
        Views of the site; empty for data without views.
    sparse : mapping of str to tuple of str
        Columns in which fewer patients have an entry than the policy requires, by view ("" for a table).
    empty : mapping of str to tuple of str
        Columns without any entry, by view.

    Examples
    --------
    >>> site_fields = SiteFields(("blood",), {"blood": ("crp",)})
    >>> SiteFields.from_text(site_fields.to_text(), "lyon") == site_fields
    True
    """

    views: tuple[str, ...] = ()
    sparse: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    empty: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, data: Any, least: int) -> Self:
        """Return the fields of a site's data; a column is sparse if fewer than `least` records have an entry."""
        below = getattr(data, "columns_below", None)
        views = tuple(getattr(data, "views", ()))
        return cls(views) if below is None else cls(views, below(max(least, 1)), below(1))

    def adds_to(self, place: Field) -> bool:
        """Return whether the site adds more than zeros to a field of a sum."""
        is_of_other_data = bool(self.views) and not place.view
        return not is_of_other_data and _has_column(SiteFields(self.views, self.empty), place)

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
                {view: _names(columns) for view, columns in lists["sparse"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise MessageError(
                "the list of the site's fields must be JSON with views and sparse columns; it cannot be read",
                where=site,
            ) from None
        return cls(views, sparse)


def sites_of_fields(by_site: Mapping[str, SiteFields]) -> dict[Field, tuple[str, ...]]:
    """Return the sites with each field, for the fields that at least one site lacks.

    Examples
    --------
    >>> by_site = {"lyon": SiteFields(("blood", "scan")), "oslo": SiteFields(("blood",), {"blood": ("crp",)})}
    >>> {str(field): sites for field, sites in sites_of_fields(by_site).items()}
    {"view 'scan'": ('lyon',), "view 'blood', column 'crp'": ('lyon',)}
    """
    views = dict.fromkeys(view for fields in by_site.values() for view in fields.views)
    sparse = dict.fromkeys(
        Field(view, name) for fields in by_site.values() for view in fields.sparse for name in fields.sparse[view]
    )
    sites_by_field = {
        Field(view): tuple(site for site, fields in by_site.items() if view in fields.views) for view in views
    }
    for column in sparse:
        sites_by_field[column] = tuple(site for site, fields in by_site.items() if _has_column(fields, column))
    return {place: sites for place, sites in sites_by_field.items() if len(sites) < len(by_site)}


def sites_behind(by_site: Mapping[str, SiteFields], peers: Sequence[str], threshold: int) -> dict[Field, SitesBehind]:
    """Return the sites behind each field of a masked sum, for the fields that at least one site lacks.

    Parameters
    ----------
    by_site : mapping of str to SiteFields
        Fields of each site.
    peers : sequence of str
        Sites that receive the request.
    threshold : int
        Number of sites that suffice for the sum; the others may be lost.

    Notes
    -----
    A field that no site has is left out. If all sites of a field are lost, its sum is 0.

    Examples
    --------
    >>> by_site = {site: SiteFields(("blood", "scan") if site == "lyon" else ("blood",)) for site in ("lyon", "oslo")}
    >>> {str(field): behind.fewest for field, behind in sites_behind(by_site, ("lyon", "oslo"), 2).items()}
    {"view 'scan'": 1}
    """
    of_peers = {site: by_site.get(site, SiteFields()) for site in dict.fromkeys(peers)}
    n_lost = max(len(of_peers) - threshold, 0)
    sites_by_field = sites_of_fields(of_peers)
    return {place: SitesBehind(max(len(sites) - n_lost, 1), sites) for place, sites in sites_by_field.items() if sites}


def find_lone_fields(behind: Mapping[Field, SitesBehind], least: int) -> Refusal | None:
    """Return the refusal of a masked sum with fields that fewer than `least` sites have.

    Examples
    --------
    >>> behind = {Field("scan"): SitesBehind(1, ("lyon",)), Field("", "crp"): SitesBehind(2, ("lyon", "oslo"))}
    >>> find_lone_fields(behind, 2).reason
    "at least 2 sites must have each view and column of a masked sum; got 1 for view 'scan' (at lyon)"
    """
    lone = [f"{n} for {place} (at {name_some(sites)})" for place, (n, sites) in behind.items() if n < least]
    if not lone:
        return None
    more = f" and {len(lone) - _MAX_NAMED} more" if len(lone) > _MAX_NAMED else ""
    listed = ", ".join(lone[:_MAX_NAMED])
    reason = f"at least {least} sites must have each view and column of a masked sum; got {listed}{more}"
    return Refusal("min_sites_in_sum", reason, hint=f"{_HINT} {ASK_STEWARD}")


def _has_column(fields: SiteFields, column: Field) -> bool:
    has_view = not column.view or column.view in fields.views
    return has_view and column.column not in fields.sparse.get(column.view, ())


def _names(listed: object) -> tuple[str, ...]:
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise TypeError
    return tuple(listed)
