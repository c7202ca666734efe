"""The rounds of a search for thresholds: each asks for the sums of counts in ever smaller cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import ConfigurationError
from multicentre.statistics.quantiles import messages as sent
from multicentre.statistics.quantiles.limits import BITS, MOST_PARTS
from multicentre.statistics.quantiles.maths import CODE_BITS, Floats, up_to_float32
from multicentre.statistics.quantiles.search import Search, Terms
from multicentre.statistics.quantiles.site import CountingPart

STEPS = frozenset({"count_below"})


def find_thresholds(
    federation: Federation,
    part: type[CountingPart],
    *,
    n_columns: int,
    n_parts: int,
    bits: int = 4,
    tol: float = 0.01,
    min_cell: int = 0,
    exact: bool = False,
    every_value: bool = False,
    name: str = "thresholds",
) -> list[Floats]:
    """Return thresholds that cut each column in parts of as many records, over all sites.

    Part j holds the records with t[j - 1] < x <= t[j]. Tied records are in one part, so that there may be fewer parts;
    records whose values agree in the part's `finest` digits count as tied, and subnormal values (magnitudes below
    2.2e-308) with 0;
    a constant column and one without values have none. At most 64 / bits sums are taken, for all columns together; the
    smallest and the largest value stay unknown.

    Parameters
    ----------
    federation : Federation
        Of the fit, as `begin` returned it.
    part : type
        Its site part.
    n_columns : int
        Columns of `quantile_values`.
    n_parts : int
        From 2 to 1024; target ranks are floor(j n / n_parts), n the column's known values.
    bits : {4, 1, 2, 8}
        A round splits each cell in 2**bits.
    tol : float, default 0.01
        A part's size differs from n / n_parts by at most this share of it, ties apart.
    min_cell : int, default 0
        The same in records; the larger tolerance counts. No cell of so few records is split.
    exact : bool, default False
        Tell any two values apart, as far as their last binary digit, and allow ``tol=0``: the counts are then those of
        sorted records, and a cell may close in on one patient's value. Sites whose policy asks for a minimum of
        patients refuse cells of more than the part's `finest` digits.
    every_value : bool, default False
        A column with no more different values than parts has a threshold between any two neighbours, even where one of
        them has few records (more than the tolerance).
    name : str
        Tells the searches of one fit apart; a resumed run takes what was found.

    Returns
    -------
    list of arrays of shape (at most n_parts - 1,)
        Increasing, by column. A threshold lies half-way in the gap that is known to be empty, or on a border that is no
        round number.

    Raises
    ------
    ConfigurationError
        A parameter is out of range, or ``tol=0`` without `exact`.

    Notes
    -----
    Counts are exact, so that a threshold does not depend on how records are split over sites. Unmasked, a site refuses
    counts in which a cell that is not empty has fewer records than its policy's minimum, or in which fewer records lack
    a value. When a site is lost on the way, the search begins again.

    What shows: counts over all sites in the cells that were split. A coordinator that strays from the search can follow
    n_parts ranks of the pooled values, four times in a fit, to `finest` digits, without learning whose they are; in
    many fits, all of them.

    Examples
    --------
    >>> import multicentre as mc
    >>> class Ages(CountingPart):
    ...     method, holds = "ages", np.ndarray
    ...
    ...     def quantile_values(self):
    ...         return self.data
    >>> data = {f"site-{i}": np.random.default_rng(i).normal(60, 9, (200, 1)) for i in range(3)}
    >>> federation = mc.Federation.in_process(data).begin(Ages)
    >>> thresholds = find_thresholds(federation, Ages, n_columns=1, n_parts=4)[0]
    >>> np.bincount(np.searchsorted(thresholds, np.concatenate(list(data.values()))[:, 0])).tolist()
    [149, 151, 150, 150]
    """
    _check(n_columns, n_parts, bits, tol, min_cell, exact)
    finest = CODE_BITS if exact else part.finest
    terms = Terms(n_columns, n_parts, bits, finest, tol, min_cell, every_value)
    return federation.once(name, sent.Thresholds, lambda: _search(federation, part, terms)).columns


def cuts_for_bins(
    federation: Federation,
    part: type[CountingPart],
    *,
    n_columns: int,
    n_bins: int = 256,
    bits: int = 4,
    tol: float = 0.05,
    min_cell: int = 0,
    name: str = "cuts",
) -> list[NDArray[np.float32]]:
    """Return the cuts of histogram boosting, at most n_bins - 1 a column, in single precision; bin j is x < cut[j].

    Every two neighbouring values of a column with few different ones have a cut between them. Parameters and errors
    are those of :func:`find_thresholds`; `quantile_values` should be single precision themselves, and the part's
    `finest` 36.

    Examples
    --------
    >>> import multicentre as mc
    >>> class Sexes(CountingPart):
    ...     method, holds, finest = "sexes", np.ndarray, 36
    ...
    ...     def quantile_values(self):
    ...         return self.data
    >>> data = {f"site-{i}": np.repeat([[0.0], [1.0]], [30, 90], axis=0) for i in range(3)}
    >>> federation = mc.Federation.in_process(data).begin(Sexes)
    >>> [cut.tolist() for cut in cuts_for_bins(federation, Sexes, n_columns=1)]
    [[0.5]]
    """
    found = find_thresholds(
        federation,
        part,
        n_columns=n_columns,
        n_parts=n_bins,
        bits=bits,
        tol=tol,
        min_cell=min_cell,
        every_value=True,
        name=name,
    )
    return [np.unique(up_to_float32(thresholds)) for thresholds in found]


def _search(federation: Federation, part: type[CountingPart], terms: Terms) -> sent.Thresholds:
    while True:
        sites = federation.sites
        search = Search(terms)
        while len(search.column) and federation.sites == sites:
            ask = sent.Cells(terms.n_parts, terms.bits, search.level, search.column, search.prefix)
            below = federation.sum(part.count_below, ask).below
            if federation.sites == sites:
                search.take(below)
        if federation.sites == sites:
            return sent.Thresholds.of(search.thresholds())


def _check(n_columns: int, n_parts: int, bits: int, tol: float, min_cell: int, exact: bool) -> None:
    if n_columns < 1 or not 2 <= n_parts <= MOST_PARTS or bits not in BITS:
        raise ConfigurationError(
            f"{n_columns} columns in {n_parts} parts, {bits} bits a round, cannot be searched",
            where="thresholds",
            mend=f"Take a column or more, 2 to {MOST_PARTS} parts, and 1, 2, 4 or 8 bits.",
        )
    if not 0 <= tol <= 1 or min_cell < 0:
        raise ConfigurationError("a tolerance is out of range", where="tol", mend="Take a share from 0 to 1.")
    if tol == 0 and not exact:
        raise ConfigurationError(
            "without tolerance the search closes in on single patients", where="tol", mend="Take 0.01, or exact=True."
        )
