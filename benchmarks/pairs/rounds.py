"""A round in one process beside Flower's simulation: its own loop, and FedAvg."""

from __future__ import annotations

import numpy as np
from pairing import Pair, Pairs, Way
from peers.process import Peer

from pairs.summing import rounds

SIZE, N_SITES = 10, 5


def pairs(quick: bool) -> Pairs:
    """Yield rounds in which every site receives and returns ten numbers."""
    n_rounds = 2 if quick else 10
    with Peer("flower_simulation.py", n_sites=np.array(N_SITES)) as flower:
        yield Pair(
            f"{n_rounds} rounds, {SIZE} numbers each way",
            f"{N_SITES} sites",
            [
                Way("unmasked", rounds(N_SITES, n_rounds, SIZE, secure_sum=False)),
                Way("unmasked, strict (through the wire format)", strict(n_rounds)),
                Way("masked", rounds(N_SITES, n_rounds, SIZE)),
            ],
            [
                Way("Flower's simulation, FedAvg", lambda: flower.run("fedavg", n_rounds, SIZE), "ray"),
                Way("Flower's simulation, own loop", lambda: flower.run("loop", n_rounds, SIZE), "ray"),
            ],
            None,
            "site and round",
            N_SITES * n_rounds,
        )


def strict(n_rounds: int):
    """Return rounds in which every message passes the wire format."""
    return rounds(N_SITES, n_rounds, SIZE, secure_sum=False, strict=True)
