"""Studies: ``study.toml``, its run, the run folder, and the comparison of federated, pooled and single-site fits."""

from multicentre.studies.compare import Comparison, compare
from multicentre.studies.demo import run_demo
from multicentre.studies.folder import RunFolder
from multicentre.studies.runner import resume_run, run_study
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
