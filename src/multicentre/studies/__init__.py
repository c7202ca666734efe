"""Studies: ``study.toml``, runs, run folders, and the comparison of federated, pooled and single-site fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.studies.comparison import compare
    from multicentre.studies.comparison_result import Comparison
    from multicentre.studies.run_folder import RunFolder
    from multicentre.studies.runner import resume_run, run_study
    from multicentre.studies.site_patients import SiteData
    from multicentre.studies.study import Study
    from multicentre.studies.study_file import read_study

__all__ = [
    "Comparison",
    "RunFolder",
    "SiteData",
    "Study",
    "compare",
    "read_study",
    "resume_run",
    "run_study",
]

_MODULES = {
    "Comparison": "comparison_result",
    "RunFolder": "run_folder",
    "SiteData": "site_patients",
    "Study": "study",
    "compare": "comparison",
    "read_study": "study_file",
    "resume_run": "runner",
    "run_study": "runner",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
