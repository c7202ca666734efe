"""State of a site in each of the passes of boosting, which run side by side.

Pass 0 is that of the model. Pass k holds out fold k, for the recalibration. All passes share the split into folds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.survival.surv_boost.messages import MAX_FOLDS, Memory, refusal

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class PassState:
    """State of a site in one pass; see the fields of :class:`Memory`."""

    log_weights: Floats
    held: int
    packed: NDArray[np.uint8]
    lengths: Integers
    shares: Floats
    curves: Floats
    votes: float
    stopped: bool

    def holds_out(self, folds: Integers) -> Flags:
        """Return which patients are held out, shape (n,)."""
        return np.asarray((folds == self.held) & (self.held > 0))


def state_of(memory: Memory, number: int) -> PassState:
    """Return the state in a pass; that before any boosting if the pass has not begun."""
    key = str(number)
    if key not in memory.held:
        return PassState(
            log_weights=np.zeros(len(memory.folds)),
            held=0,
            packed=np.zeros(0, dtype=np.uint8),
            lengths=np.zeros(0, dtype=np.int64),
            shares=np.zeros((0, 0)),
            curves=np.zeros((0, len(memory.times))),
            votes=0.0,
            stopped=False,
        )
    values: dict[str, Any] = {field.name: getattr(memory, field.name)[key] for field in fields(PassState)}
    values["votes"], values["stopped"] = float(values["votes"][0]), bool(values["stopped"][0])
    return PassState(**values)


def with_state(memory: Memory, number: int, state: PassState, **common: Any) -> Memory:
    """Return the memory with the state in a pass, and with new values of fields that all passes share."""
    values: dict[str, Any] = {field.name: getattr(state, field.name) for field in fields(PassState)}
    values["votes"], values["stopped"] = np.array([state.votes]), np.array([state.stopped])
    changes: dict[str, Any] = {name: {**getattr(memory, name), str(number): value} for name, value in values.items()}
    return replace(memory, **changes, **common)


def check_number(number: int) -> int:
    """Return the number of a pass, or raise ConfigurationError."""
    if not 0 <= number <= MAX_FOLDS:
        raise refusal(f"of_pass must be from 0 to {MAX_FOLDS}; got {number}", "of_pass", "Start a new fit.")
    return number
