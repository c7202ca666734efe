"""Schemas of views and columns, and the agreement of all sites on one schema before the first round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, TypeVar, get_args

from multicentre.errors import DataError, SchemaMismatch

Kind = Literal["number", "boolean"]
Version = tuple[tuple[str, ...], tuple[Kind, ...]]
# An error lists at most this many names, so that a message stays readable.
_MAX_NAMED = 5


class Columned(Protocol):
    """Table of a site, or its description."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def levels(self) -> tuple[str, ...]:
        """Declared levels of the categories, ``name=level``."""


class Classed(Columned, Protocol):
    """Description of a table with an outcome."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; empty for a number."""


C = TypeVar("C", bound=Classed)


def agree_tables(described: Mapping[str, C]) -> C:
    """Return the description that all sites share: columns, levels and classes.

    Parameters
    ----------
    described : mapping of str to description
        Description of every site, by site name.

    Raises
    ------
    SchemaMismatch
        A site differs from the first.
    """
    (first, answer), *others = described.items()
    for site, other in others:
        check_columns(f"site {site}", other, first, answer)
        if other.classes != answer.classes:
            raise SchemaMismatch(
                f"classes must be those of {first}, in the same order; got different ones",
                where=f"site {site}",
                hint="Declare the same classes at every site.",
            )
    return answer


def check_columns(site: str, data: Columned, first: str, expected: Columned) -> None:
    """Check that a site has the columns of the first site, in the same order, and the same levels of every category.

    Raises
    ------
    SchemaMismatch
        The columns or the levels differ.
    """
    for what, names, others in (("columns", data.columns, expected.columns), ("levels", data.levels, expected.levels)):
        if names != others:
            differing = ", ".join(sorted(set(names) ^ set(others))[:_MAX_NAMED])
            raise SchemaMismatch(
                f"{what} must be those of {first}, in the same order; "
                f"got {f'differences in {differing}' if differing else 'another order'}",
                where=site,
                hint="Use the same columns in the same order, and the same levels of every category, at every site.",
            )


@dataclass(frozen=True)
class MultiViewSchema:
    """Names and kinds of the columns of every view, without data on patients.

    Parameters
    ----------
    views : tuple of str
        View names, in stacking order.
    columns : mapping from str to tuple of str
        Column names of every view, in order.
    kinds : mapping from str to tuple of {"number", "boolean"}
        Kind of every column.

    Raises
    ------
    DataError
        The three parts are inconsistent.

    Examples
    --------
    >>> schema = MultiViewSchema(("blood",), {"blood": ("iron", "anaemia")}, {"blood": ("number", "boolean")})
    >>> schema.sizes
    {'blood': 2}
    """

    views: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, tuple[Kind, ...]]

    def __post_init__(self) -> None:
        if len(set(self.views)) != len(self.views) or not set(self.views) == set(self.columns) == set(self.kinds):
            raise DataError(
                "views, columns and kinds must name the same views, each once; they do not",
                where="schema",
                hint="List each view once.",
            )
        for view in self.views:
            names, kinds = self.columns[view], self.kinds[view]
            if not names or len(set(names)) != len(names) or len(names) != len(kinds):
                raise DataError(
                    f"columns must be unique and have one kind each; got {len(names)} columns and {len(kinds)} kinds",
                    where=f"schema, view {view!r}",
                    hint="Assign a unique name and one kind to every column.",
                )
            if not set(kinds) <= set(get_args(Kind)):
                others = ", ".join(sorted(set(kinds) - set(get_args(Kind))))
                raise DataError(
                    f"kinds must be {' or '.join(get_args(Kind))}; got {others}",
                    where=f"schema, view {view!r}",
                    hint="Correct the kind.",
                )

    @property
    def sizes(self) -> dict[str, int]:
        """Number of columns of every view."""
        return {view: len(self.columns[view]) for view in self.views}

    @property
    def n_features(self) -> int:
        """Total number of columns of all views."""
        return sum(self.sizes.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as lists and strings, ready for JSON."""
        return {
            "views": list(self.views),
            "columns": {view: list(self.columns[view]) for view in self.views},
            "kinds": {view: list(self.kinds[view]) for view in self.views},
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Create a schema from the output of `to_dict`.

        Raises
        ------
        DataError
            A key is missing, or a value is not a list of strings.
        """
        try:
            views = _texts(content["views"])
            columns = {view: _texts(names) for view, names in content["columns"].items()}
            kinds: dict[str, Any] = {view: _texts(names) for view, names in content["kinds"].items()}
        except (AttributeError, KeyError, TypeError) as error:
            raise DataError(
                "the content must be a schema with lists of strings; got another content",
                where="schema",
                hint="Pass the output of MultiViewSchema.to_dict.",
            ) from error
        return cls(views, columns, kinds)

    def _version(self, view: str) -> Version:
        return tuple(self.columns[view]), tuple(self.kinds[view])


def agree_schemas(schemas: Mapping[str, MultiViewSchema]) -> MultiViewSchema:
    """Return the union of the sites' schemas.

    A site may lack a view. All sites with a view must have the same columns, in the same order and of the same kinds.
    Views are ordered by their first appearance in the order of the sites.

    Parameters
    ----------
    schemas : mapping from str to MultiViewSchema
        Schema of every site, by site name.

    Raises
    ------
    DataError
        There is no site.
    SchemaMismatch
        A view differs between sites. The most frequent version is taken as the reference; ties go to the first site.

    Examples
    --------
    >>> blood = MultiViewSchema(("blood",), {"blood": ("iron",)}, {"blood": ("number",)})
    >>> image = MultiViewSchema(("image",), {"image": ("area",)}, {"image": ("number",)})
    >>> agree_schemas({"lyon": blood, "oslo": image}).views
    ('blood', 'image')
    """
    if not schemas:
        raise DataError("there must be at least one schema; got 0", where="schema", hint="Pass at least one site.")
    views = tuple(dict.fromkeys(view for schema in schemas.values() for view in schema.views))
    agreed = {view: _agree_view(view, schemas) for view in views}
    return MultiViewSchema(
        views,
        {view: names for view, (names, _) in agreed.items()},
        {view: kinds for view, (_, kinds) in agreed.items()},
    )


def _agree_view(view: str, schemas: Mapping[str, MultiViewSchema]) -> Version:
    versions = {site: schema._version(view) for site, schema in schemas.items() if view in schema.views}
    (majority, n_agree), *others = Counter(versions.values()).most_common()
    if not others:
        return majority
    differing = [site for site, version in versions.items() if version != majority]
    clauses = [f"{site}: {_difference(versions[site], majority)}" for site in differing[:5]]
    if len(differing) > len(clauses):
        clauses.append(f"and {len(differing) - len(clauses)} more sites")
    raise SchemaMismatch(
        f"columns must be those of {n_agree} of {len(versions)} sites; these differ ({'; '.join(clauses)})",
        where=f"{'site' if len(differing) == 1 else 'sites'} {', '.join(differing[:5])}, view {view!r}",
        hint="Use the same columns of the view, in the same order and of the same kinds, at every site that has it. A "
        "column without an entry is of kind number unless its type is boolean.",
    )


def _difference(version: Version, majority: Version) -> str:
    (names, kinds), (right_names, right_kinds) = version, majority
    extra = [name for name in names if name not in right_names]
    for j, right in enumerate(right_names):
        if right not in names:
            instead = f", {extra[0]!r} is not expected" if extra else ""
            return f"column {right!r} is missing, expected as column {j + 1}{instead}"
        if extra and names[j] == extra[0]:
            break
        if names[j] != right:
            return f"column {right!r} is at a different position, expected as column {j + 1}"
        if kinds[j] != right_kinds[j]:
            return f"column {right!r} is of kind {kinds[j]}, expected {right_kinds[j]}"
    return f"column {extra[0]!r} is not expected, expected are {len(right_names)} columns"


def _texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise TypeError("values must be a list of strings")
    return tuple(values)
