"""The one round of forests of local trees: sites offer, the coordinator orders, sites grow and give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import cast

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import DataError, MessageError
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.forest import messages as sent
from multicentre.survival.forest.site import ForestSite
from multicentre.survival.models.packing import join, split
from multicentre.survival.models.trees import Trees

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Allot = Callable[[Floats, Integers], Integers]


def order_trees(federation: Federation, forest: sent.Forest, allot: Allot) -> sent.Orders:
    """Ask what the sites can give, and settle how many trees each will.

    Raises
    ------
    DataError
        No site has patients and events enough for a tree.
    """
    return federation.once("orders", sent.Orders, lambda: _order(federation, forest, allot))


def _order(federation: Federation, forest: sent.Forest, allot: Allot) -> sent.Orders:
    offers = federation.ask(ForestSite.offer_trees, forest)
    n_patients = np.array([offer.n_patients for offer in offers.values()])
    offered = np.array([min(offer.n_trees, forest.n_trees) for offer in offers.values()], dtype=np.int64)
    if not (offered > 0).any():
        raise _no_tree()
    return sent.Orders(tuple(offers), n_patients, allot(n_patients, offered))


def gather_trees(federation: Federation, forest: sent.Forest, orders: sent.Orders, agreed: Agreed) -> dict[str, Trees]:
    """Have the sites grow what was ordered of them, once, and return their trees by site, none of them empty.

    Raises
    ------
    DataError
        No site could grow a tree.
    MessageError
        What a site gave is no forest on the grid.
    """
    gathered = federation.once("gathered", sent.Gathered, lambda: _gather(federation, forest, orders, agreed))
    trees = split(gathered.packed, gathered.lengths, {"Trees": Trees}, len(agreed.columns))
    return dict(zip(gathered.sites, cast("Sequence[Trees]", trees), strict=True))


def _gather(federation: Federation, forest: sent.Forest, orders: sent.Orders, agreed: Agreed) -> sent.Gathered:
    asks = {
        site: sent.Order(**asdict(forest), wanted=wanted)
        for site, wanted in zip(orders.sites, orders.wanted.tolist(), strict=True)
        if wanted and site in federation.sites
    }
    given = federation.collect(ForestSite.grow_trees, asks, to=tuple(asks))
    grown = {site: _checked(site, trees, asks[site], agreed) for site, trees in given.items() if not trees.is_empty}
    if not grown:
        raise _no_tree()
    return sent.Gathered(tuple(grown), *join(grown.values()))


def _checked(site: str, trees: Trees, order: sent.Order, agreed: Agreed) -> Trees:
    try:
        trees.valid(len(agreed.columns))
    except MessageError as error:
        raise MessageError(error.what, where=f"site {site}, {error.where}", mend="Leave the site out.") from None
    if not np.array_equal(trees.times, agreed.times) or len(trees.roots) > order.wanted:
        raise MessageError("the trees are not those ordered", where=f"site {site}", mend="Leave the site out.")
    return trees


def _no_tree() -> DataError:
    return DataError(
        "no site has patients and events enough for a tree",
        where="min_leaf, min_events",
        mend="Lower them, or lengthen the horizon; a site refuses leaves of fewer than 15 patients.",
    )
