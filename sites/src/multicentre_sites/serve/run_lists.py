"""Runs and study files of a folder, by the names under which pages refer to them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multicentre.core.parsing import load_toml
from multicentre.errors import MulticentreError
from multicentre.studies.run_events import EVENTS
from multicentre.studies.run_folder import RunFolder
from multicentre_sites.deployment.coordinator_folder import Consortium

# A longer list is slow to read; the newest runs come first.
_MAX_RUNS = 500
_RUNS = ("*", "runs/*", "state/runs/*/*/*")
_STUDIES = "*.toml"
_ANOTHER = "To see files in another folder, start multicentre serve with that folder."
# Places of the lists, relative to the folder that the command names, for pages with an empty list.
RUN_PLACES = (
    f"Runs are listed from the folder itself and from {', '.join(_RUNS[:-1])} and {_RUNS[-1]} in it. {_ANOTHER}"
)
STUDY_PLACES = f"Study files are listed from {_STUDIES} in the folder, not from its subfolders. {_ANOTHER}"


@dataclass(frozen=True)
class ListedRun:
    """Run in a list.

    Parameters
    ----------
    name : str
        Path relative to the folder of the list.
    path : Path
    metadata : mapping
        Contents of ``run.json``; empty if it cannot be read.
    """

    name: str
    path: Path
    metadata: dict[str, Any]

    @property
    def has_events(self) -> bool:
        """True if the folder contains a record of events."""
        return (self.path / EVENTS).is_file()

    def fact(self, name: str) -> str:
        """Return an entry of ``run.json`` as text; empty without it."""
        value = self.metadata.get(name)
        return value if isinstance(value, str) else ""


def list_runs(folder: Path) -> dict[str, ListedRun]:
    """Return the runs of a folder, the newest first.

    They are the folder itself, its subfolders, those of its folder ``runs``, and the runs of analysts at a coordinator.
    """
    paths = [path for place in _RUNS for path in folder.glob(place) if _is_run(path)]
    runs = [_listed(path.relative_to(folder).as_posix(), path) for path in paths]
    if _is_run(folder):
        runs.append(_listed(folder.name, folder))
    runs.sort(key=lambda run: (run.fact("started"), run.name), reverse=True)
    return {run.name: run for run in runs[:_MAX_RUNS]}


def list_studies(folder: Path) -> dict[str, Path]:
    """Return the study files of a folder by name."""
    return {path.name: path for path in sorted(folder.glob(_STUDIES)) if _is_study(path)}


def is_coordinator(folder: Path) -> bool:
    """Return whether a folder is that of a coordinator."""
    try:
        Consortium.read(folder)
    except MulticentreError:
        return False
    return True


def _is_run(path: Path) -> bool:
    is_hidden = path.name.startswith(".")
    return not is_hidden and path.is_dir() and ((path / "run.json").is_file() or (path / EVENTS).is_file())


def _listed(name: str, path: Path) -> ListedRun:
    try:
        return ListedRun(name, path, RunFolder.open(path).metadata)
    except MulticentreError:
        return ListedRun(name, path, {})


def _is_study(path: Path) -> bool:
    if not path.is_file() or path.is_symlink():
        return False
    try:
        return "study" in load_toml(path.read_bytes())
    except (OSError, ValueError):
        return False
