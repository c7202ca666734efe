"""A method whose answers tests lay down, with every kind of summand."""

from dataclasses import dataclass

import numpy as np

from multicentre.core.messages import Nothing, array, arrays, count, number
from multicentre.core.steps import Release, SitePart, step
from support.toy_method import federate


@dataclass(frozen=True)
class Mixed(Release):
    """Every kind of summand."""

    square: np.ndarray = array("x", ("a", "b"), bound=1e10)
    short: np.ndarray = array("x", ("a",), dtype="i4", bound=2.0**31)
    long: np.ndarray = array("x", ("c",), dtype="i8", bound=2.0**56)
    single: np.ndarray = array("x", (), dtype="f4", bound=1e3)
    views: dict = arrays("x", ("p",), bound=1e6)
    n: int = count("x")
    amount: float = number("x", finite=False, bound=1e10)
    perhaps: float | None = number("x", optional=True, bound=1.0)


class MixedSite(SitePart):
    """Answers with what a test laid down."""

    method = "mixed"
    holds = Mixed

    @step(releases=Mixed, summed=True)
    def answer(self, request: Nothing) -> Mixed:
        """Answer."""
        return self.data


def mixed(**changes):
    values = {
        "square": np.array([[1.5, -2.25]]),
        "short": np.array([3], "i4"),
        "long": np.array([2**55 + 1, -7]),
        "single": np.array(0.5, "f4"),
        "views": {"a|b": np.array([1e5, -1.0]), "c": np.empty(0)},
        "n": 30,
        "amount": -0.125,
    }
    return Mixed(**values | changes, patients=30)


def begun(*answers, n_sums=2, **options):
    """Return a federation whose sites hold these answers, ready for masked sums."""
    sites = {f"site-{i}": answer for i, answer in enumerate(answers)}
    federation = federate(sites, secure_sum=True, **options)
    federation.summation._n_sums = n_sums
    return federation.begin(MixedSite)


def masked_sum(*answers, **options):
    return begun(*answers, **options).sum(MixedSite.answer, Nothing())
