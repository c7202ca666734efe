"""What masked sums cost: seconds to mask, bytes on the wire, and time a sum, at the coordinator and at a site."""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from measuring import median_seconds, pin_threads, show, write_json

import multicentre as mc
from multicentre.core.calls import Call, Engine, Mask, Outcome
from multicentre.core.messages import Nothing, array
from multicentre.core.steps import Release, SitePart, step
from multicentre.core.wire import encode
from multicentre.privacy.secure_sum.identity import Identity, verify
from multicentre.privacy.secure_sum.messages import Masked
from multicentre.privacy.secure_sum.rounds import N_SUMS
from multicentre.privacy.secure_sum.shares import combine_shares, split_seeds
from multicentre.privacy.secure_sum.site import MaskingKeys, MaskingSeal
from support.engines import with_engine

SMALL, N_PEERS = 100, 9
try:
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
    from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition, parameters_mod
    from flwr.common.secure_aggregation.quantization import quantize
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    HAS_FLOWER = True
except ImportError:
    HAS_FLOWER = False


@dataclass(frozen=True)
class Vector(Release):
    """A vector to be summed."""

    values: np.ndarray = array("values", ("d",), bound=2.0**20)


class VectorSite(SitePart):
    """Holds the vector itself, so that nothing but the sum is timed."""

    method = "benchmark-vector"
    holds = np.ndarray

    @step(releases=Vector, summed=True)
    def give(self, request: Nothing) -> Vector:
        """Give the vector."""
        return Vector(self.data, patients=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_000_000, help="numbers in the long vector")
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 10, 50])
    parser.add_argument("--runs", type=int, default=5, help="runs whose median is reported")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    pin_threads()
    masks = masking(given.size, given.runs)
    show(
        f"Masking {given.size:,} numbers at one of {N_PEERS + 1} sites",
        ["", "seconds"],
        [[name, "flwr is not installed" if seconds is None else f"{seconds:.3f}"] for name, seconds in masks.items()],
    )
    wire = bytes_a_number(given.size)
    print(f"\n{wire:.5f} bytes a number on the wire")
    batches = [batch(n, recovers, given.runs) for n in given.sites for recovers in (False, True)]
    show(
        f"Sums of {SMALL} numbers; the first {N_SUMS} of a fit, sites and coordinator in turn",
        [
            "sites",
            "losses",
            "ms per first sum and site",
            "ms per later sum and site",
            "coordinator",
            "exchanges per sum",
            "bytes of keys per sum and site",
        ],
        [
            [
                str(found["sites"]),
                "tolerated" if found["recovers"] else "none",
                f"{found['first_ms']:.2f}",
                f"{found['later_ms']:.2f}",
                f"{found['coordinator_ms']:.2f}",
                f"{found['exchanges']:.2f}",
                f"{found['key_bytes']:.0f}",
            ]
            for found in batches
        ],
    )
    seeds = [of_seeds(n, given.runs) for n in given.sites]
    show(
        "Shares of one seed (Shamir), and one signature, ms",
        ["sites", "cut a seed", "put it together", "check a signature"],
        [
            [str(found["sites"]), f"{found['cut_ms']:.2f}", f"{found['combine_ms']:.2f}", f"{found['verify_ms']:.2f}"]
            for found in seeds
        ],
    )
    write_json(given.json, {"masking_s": masks, "bytes_a_number": wire, "batches": batches, "seeds": seeds})


def masking(size: int, n_runs: int) -> dict[str, float | None]:
    """Time what one site does to a long vector: ours, and Flower's own functions where they are installed."""
    values = np.random.default_rng(0).normal(size=size)
    return {
        "losses tolerated": median_seconds(masker(values, N_PEERS // 2 + 2), min(n_runs, N_SUMS - 1)),
        "every site needed": median_seconds(masker(values, "all"), min(n_runs, N_SUMS - 1)),
        "Flower's SecAgg+": median_seconds(flower_masker(values), n_runs) if HAS_FLOWER else None,
    }


def masker(values: np.ndarray, quorum: int | str):
    """Return a run that masks a vector; it can be called for every sum of an agreement but the first."""
    keys = agreed_keys(quorum)
    terms, seal, numbers = keys._agreement.terms, MaskingSeal(Identity.generate(), {}), itertools.count(1)

    def run() -> Masked:
        mask = Mask(terms.agreement, next(numbers), terms.threshold)
        call = Call(terms.study, terms.session, 0, VectorSite.give, Nothing(), terms.sites, mask)
        return seal.protect(call, Vector(values, patients=100), keys)

    return run


def bytes_a_number(size: int) -> float:
    """Return the bytes of a masked answer as it travels, over the numbers in it."""
    return len(encode(masker(np.zeros(size), "all")())) / size


def agreed_keys(quorum: int | str) -> MaskingKeys:
    """Return the keys of one site after a short sum."""
    federation = federate(N_PEERS + 1, quorum)
    federation.sum(VectorSite.give, Nothing())
    return federation.engine._runtimes["site-0"].sessions.parts[federation.name, MaskingKeys]


def federate(n_sites: int, quorum: int | str):
    sites = {f"site-{i}": np.random.default_rng(i).normal(size=SMALL) for i in range(n_sites)}
    return mc.Federation.in_process(sites, quorum=quorum).begin(VectorSite)


def flower_masker(values: np.ndarray):
    """Return a run that does to a vector what Flower's SecAgg+ client does, by its own functions and default ranges."""
    own = ec.generate_private_key(ec.SECP384R1())
    peers = [ec.generate_private_key(ec.SECP384R1()).public_key() for _ in range(N_PEERS)]

    def run() -> list[np.ndarray]:
        vector = quantize([values], 8.0, 2**22)
        vector = parameters_addition(vector, pseudo_rand_gen(os.urandom(32), 2**32, [values.shape]))
        for peer in peers:
            shared = generate_shared_key(own, peer)
            vector = parameters_addition(vector, pseudo_rand_gen(shared, 2**32, [values.shape]))
        return parameters_mod(vector, 2**32)

    return run


class Stopwatch:
    """Wraps an engine and adds up the processor's seconds that sites take."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.seconds = engine, 0.0
        self.sites, self.run_command, self.close = engine.sites, engine.run_command, engine.close

    def exchange(self, calls: Mapping[str, Call], time_limit_s: float | None) -> dict[str, Outcome]:
        began = time.process_time()
        outcomes = self.engine.exchange(calls, time_limit_s)
        self.seconds += time.process_time() - began
        return outcomes


def batch(n_sites: int, recovers: bool, n_runs: int) -> dict[str, float | int | bool]:
    """Time the first sums of fits: the very first, which includes an agreement on keys, and the later ones."""
    federation = federate(n_sites, n_sites // 2 + 1 if recovers else "all")
    watch = Stopwatch(federation.engine)
    federation = with_engine(federation, watch)
    first, later, coordinator = [], [], []
    for _ in range(n_runs):
        fit = federation.federation.begin(VectorSite)
        for number in range(N_SUMS):
            watch.seconds, began = 0.0, time.process_time()
            fit.sum(VectorSite.give, Nothing())
            (later if number else first).append(watch.seconds)
            coordinator.append(time.process_time() - began - watch.seconds)
    traffic = fit.traffic
    n_bytes = sum(traffic.bytes_from_sites.values()) + sum(traffic.bytes_to_sites.values())
    return {
        "sites": n_sites,
        "recovers": recovers,
        "first_ms": 1e3 * float(np.median(first)) / n_sites,
        "later_ms": 1e3 * float(np.median(later)) / n_sites,
        "coordinator_ms": 1e3 * float(np.median(coordinator)),
        "exchanges": sum(traffic.calls.values()) / N_SUMS / n_runs,
        "key_bytes": n_bytes / n_sites / N_SUMS / n_runs - 8 * (SMALL + 1),
    }


def of_seeds(n_sites: int, n_runs: int) -> dict[str, float | int]:
    """Time what a loss adds: shares of one seed, cut at every site beforehand and put together for each site lost."""
    threshold, lyon = n_sites // 2 + 1, Identity.generate()
    shares = split_seeds([bytes(16)], threshold, n_sites)[:, 0]
    held, signature = dict(enumerate(shares)), lyon.sign(b"a list")
    return {
        "sites": n_sites,
        "cut_ms": 1e3 * median_seconds(lambda: split_seeds([bytes(16)], threshold, n_sites), n_runs),
        "combine_ms": 1e3 * median_seconds(lambda: combine_shares(held, threshold), n_runs),
        "verify_ms": 1e3 * median_seconds(lambda: verify.__wrapped__(lyon.public, signature, b"a list"), n_runs),
    }


if __name__ == "__main__":
    main()
