"""Messages of both algorithms: the request of a round, and the state that a site keeps between rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.fedmsgl.messages import Held
from multicentre.federation.messages import Message, array, arrays, count, flag, number

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Iterating(Message):
    """Request of a round."""

    lambda_1: float = number("penalty of the shared part")
    lambda_2: float = number("further penalty of the shared part by distance")
    lambda_3: float = number("penalty of a view's own part")
    n_local: int = count("iterations at a site")
    seed: int = count("seed of the first own parts")
    is_first: bool = flag("whether this is the first round")
    consensus: Floats = array("what views share so far", ("n", "n"))


@dataclass(frozen=True)
class HeldParts(Held):
    """State that a site keeps between rounds."""

    own: dict[str, Floats] = arrays("the own part of every view", ("n", "n"))
