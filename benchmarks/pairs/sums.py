"""Masked sums beside unmasked ones, and beside the client functions of Flower's SecAgg+."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from pairing import Pair, Pairs, Way

from pairs.summing import rounds

# Rows of a site in long sums; the sum of 20 rows would take as long as the masks.
N_ROWS = 10
LONG_SITES = 10


def pairs(quick: bool) -> Pairs:
    """Yield short sums over several numbers of sites, then a long one."""
    for n_sites, n_rounds in [(3, 5)] if quick else [(3, 50), (10, 50), (30, 20), (100, 5)]:
        losses = {"quorum": n_sites // 2 + 1}
        yield Pair(
            f"{n_rounds} sums of 10 numbers",
            f"{n_sites} sites",
            [
                Way("masked", rounds(n_sites, n_rounds, 10)),
                Way("masked, strict (through the wire format)", rounds(n_sites, n_rounds, 10, strict=True)),
                Way("masked, losses tolerated", rounds(n_sites, n_rounds, 10, **losses)),
            ],
            [Way("unmasked", rounds(n_sites, n_rounds, 10, secure_sum=False))],
            None,
            "site and sum",
            n_sites * n_rounds,
        )
    size = 10_000 if quick else 1_000_000
    yield Pair(
        f"One sum of {size:,} numbers",
        f"{LONG_SITES} sites",
        [Way("masked", rounds(LONG_SITES, 1, size, N_ROWS))],
        [
            Way("unmasked", rounds(LONG_SITES, 1, size, N_ROWS, secure_sum=False)),
            Way("Flower, client functions of SecAgg+", secagg(size), "flwr"),
        ],
        None,
        "site and number",
        LONG_SITES * size,
    )


def secagg(size: int) -> Callable[[], None]:
    """Return what the clients of Flower's SecAgg+ do to a vector, by its functions and default ranges.

    The sum of the rows, the transport and the removal of the masks are not part of it.
    """
    values = np.random.default_rng(0).normal(size=size)

    def run() -> None:
        from cryptography.hazmat.primitives.asymmetric import ec
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
        from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition, parameters_mod
        from flwr.common.secure_aggregation.quantization import quantize
        from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

        key = ec.generate_private_key(ec.SECP384R1())
        peers = [ec.generate_private_key(ec.SECP384R1()).public_key() for _ in range(LONG_SITES - 1)]
        for _ in range(LONG_SITES):
            vector = quantize([values], 8.0, 2**22)
            vector = parameters_addition(vector, pseudo_rand_gen(os.urandom(32), 2**32, [values.shape]))
            for peer in peers:
                shared = generate_shared_key(key, peer)
                vector = parameters_addition(vector, pseudo_rand_gen(shared, 2**32, [values.shape]))
            parameters_mod(vector, 2**32)

    return run
