"""Studies: ``study.toml``, runs, run folders, and the comparison of federated, pooled and single-site fits."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre.studies.comparison import Comparison, compare
    from multicentre.studies.folder import RunFolder
    from multicentre.studies.runner import resume_run, run_demo, run_study
    from multicentre.studies.sites import SiteData
    from multicentre.studies.study import Study, read_study

__all__ = [
    "Comparison",
    "RunFolder",
    "SiteData",
    "Study",
    "compare",
    "read_study",
    "resume_run",
    "run_demo",
    "run_study",
]

_HOMES = {
    "Comparison": "comparison",
    "RunFolder": "folder",
    "SiteData": "sites",
    "Study": "study",
    "compare": "comparison",
    "read_study": "study",
    "resume_run": "runner",
    "run_demo": "runner",
    "run_study": "runner",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"multicentre.studies.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'multicentre.studies' has no attribute {name!r}")
