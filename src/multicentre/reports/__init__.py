"""Self-contained report of a run: results, figures and disclosure record on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.reports.page import render_report, write_report

__all__ = ["render_report", "write_report"]

_MODULES = dict.fromkeys(__all__, "page")

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
