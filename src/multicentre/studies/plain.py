"""Results as values that JSON can hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_plain(value: Any) -> Any:
    """Return a value in dicts, lists, texts and numbers; what is not finite becomes None.

    Examples
    --------
    >>> import numpy as np
    >>> to_plain({"mae": np.float64(0.5), "trace": np.array([1.0, np.nan])})
    {'mae': 0.5, 'trace': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): to_plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist())
    if isinstance(value, list | tuple):
        return [to_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_json(value: Any) -> str:
    """Return a value as indented JSON."""
    return json.dumps(to_plain(value), indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"
