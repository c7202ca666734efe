"""Studies of multicentre over real hospitals: keys, approvals, processes, transport over Flower, and web pages."""

from __future__ import annotations

__version__ = "0.1.0"
