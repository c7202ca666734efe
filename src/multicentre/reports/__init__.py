"""From a run folder to one page: tables, figures and the disclosure record, in a file that needs nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre.reports.page import render_report, write_report

__all__ = ["render_report", "write_report"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from multicentre.reports import page

        return getattr(page, name)
    raise AttributeError(f"module 'multicentre.reports' has no attribute {name!r}")
