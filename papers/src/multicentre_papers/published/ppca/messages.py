"""Messages of Fed-mv-PPCA as published."""

from __future__ import annotations

from dataclasses import dataclass

from multicentre.core.messages import count, flag
from multicentre.multiview.ppca.messages import Global


@dataclass(frozen=True)
class LocalRequest(Global):
    """Request of one round of local fits."""

    first: bool = flag("first round: no prior yet")
    n_iterations: int = count("local iterations I")
    faithful: bool = flag("start from a draw of the global law, as the paper does")
    seed: int = count("seed of the sites' random streams")
    round_number: int = count("number of the round")
