"""Choice between all levels of a category and all but the reference, for each term of a formula.

A term with all levels of its categories spans itself and all terms without some of them. Terms before it span a part of
this already. The rule of patsy [1]_ gives the columns that add the rest, so that no column is a combination of others.

.. [1] N. J. Smith et al., patsy, "Redundancy and categorical factors".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

# Part of the space of a term: the places of its categories, and whether each has all of its levels.
Subterm = frozenset[tuple[int, bool]]


def choose_codings(
    terms: Sequence[tuple[int, ...]], categories: frozenset[int], *, intercept: bool
) -> list[list[Subterm]]:
    """Return for each term the codings of its categories; a term with several gives the columns of all of them.

    Parameters
    ----------
    terms : sequence of tuple of int
        Factors of each term, in the order in which the terms enter.
    categories : frozenset of int
        Factors that are categories.
    intercept : bool
        Whether the model has an intercept.

    Returns
    -------
    list of list of frozenset
        Pairs (factor, True if all levels have a column).

    Examples
    --------
    >>> [sorted(each) for each in choose_codings([(0,), (0, 1)], frozenset({0}), intercept=True)[1]]
    [[(0, True)]]
    >>> [sorted(each) for each in choose_codings([(0,), (1,), (0, 1)], frozenset({0}), intercept=True)[2]]
    [[(0, False)]]
    """
    spanned: dict[frozenset[int], set[frozenset[int]]] = {frozenset(): {frozenset()} if intercept else set()}
    chosen = []
    for term in terms:
        of_term = frozenset(term)
        before = spanned.setdefault(of_term - categories, set())
        subsets = _subsets(tuple(factor for factor in term if factor in categories))
        fresh = [subset for subset in subsets if subset not in before]
        before.update(fresh)
        chosen.append(_join([frozenset((factor, False) for factor in subset) for subset in fresh]))
    return chosen


def _subsets(factors: tuple[int, ...]) -> list[frozenset[int]]:
    """Return all subsets, smaller ones first."""
    return [frozenset(chosen) for size in range(len(factors) + 1) for chosen in combinations(factors, size)]


def _join(subterms: list[Subterm]) -> list[Subterm]:
    """Replace a subterm and the same with one more category by the latter with all levels, as long as there is one."""
    joined = list(subterms)
    while pair := _pair(joined):
        short, long = pair
        (extra,) = joined[long] - joined[short]
        joined[long] = joined[short] | {(extra[0], True)}
        del joined[short]
    return joined


def _pair(subterms: list[Subterm]) -> tuple[int, int] | None:
    for short, first in enumerate(subterms):
        for long in range(short + 1, len(subterms)):
            if len(subterms[long]) == len(first) + 1 and first < subterms[long]:
                return short, long
    return None
