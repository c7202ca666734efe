"""Run folder: the results and records of one run, with atomic file writes."""

from __future__ import annotations

import csv
import io
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from multicentre.core.parsing import load_json
from multicentre.core.storage import held, write_atomically
from multicentre.errors import ConfigurationError, IntegrityError
from multicentre.privacy.run_ledgers import describe_changes
from multicentre.studies.installation import describe_environment
from multicentre.studies.serialisation import to_json
from multicentre.studies.study import Study
from multicentre.studies.study_file import read_study
from multicentre.studies.terms import study_terms

DIGESTS = "sites/data.json"

TERMS = "terms.json"


class RunFolder:
    """Folder of a run; use :meth:`create` for a new run and :meth:`open` for an existing one.

    The folder appears under its final name in one step, with ``study.toml``, ``environment.json`` and ``run.json``,
    after the study and the data of every site were read. Ledgers and checkpoints are then written in place, so that
    releases are recorded from the first request on, even if the run fails.

    Attributes
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, study: Study, metadata: Mapping[str, Any], digests: Mapping[str, str]) -> Self:
        """Create the folder ``<output>/<study>-<YYYYmmdd-HHMMSS>`` (UTC; with ``-2`` and so on if it exists).

        Parameters
        ----------
        study : Study
            Written as ``study.toml`` with absolute paths.
        metadata : mapping
            First contents of ``run.json``.
        digests : mapping from str to str
            Digest of every site's data, written as ``sites/data.json``.

        Raises
        ------
        ConfigurationError
            The folder cannot be written.
        """
        output = study.about.output
        name = f"{_slug(study.name)}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        hidden = output / f".{name}-{secrets.token_hex(4)}"
        try:
            hidden.mkdir(parents=True)
            (hidden / "sites").mkdir(mode=0o700)
            new_folder = cls(hidden)
            write_atomically(hidden / "study.toml", study.to_toml().encode())
            new_folder.write("environment.json", describe_environment())
            new_folder.write(DIGESTS, digests)
            new_folder.write(TERMS, study_terms(study))
            new_folder.write("run.json", metadata)
            return cls(_rename_to_free(hidden, output / name))
        except OSError as error:
            shutil.rmtree(hidden, ignore_errors=True)
            raise ConfigurationError(
                f"failed to create the run's folder ({error.strerror})",
                where=str(output),
                hint="Free disk space, or choose another output.",
            ) from None

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Return the folder of an earlier run.

        Raises
        ------
        ConfigurationError
            The folder contains no run.
        """
        folder = cls(Path(path))
        if not (folder.path / "run.json").is_file():
            raise ConfigurationError(
                "path must be a run folder; it has no run.json", where=str(path), hint="Name a folder with a run.json."
            )
        return folder

    @property
    def study(self) -> Study:
        """Study as of the start of the run."""
        return read_study(self.path / "study.toml")

    def check_terms(self) -> None:
        """Check that the terms in ``study.toml`` are those of the start of the run.

        Raises
        ------
        IntegrityError
            The terms were changed; the message names the differences.
        """
        changes = list(describe_changes(self.read(TERMS), study_terms(self.study)))
        if changes:
            raise IntegrityError(
                f"the run must be resumed with its original study; {'; '.join(changes)}",
                where=str(self.path / "study.toml"),
                hint="Undo the change to resume the run, or run the changed study as a new run.",
            )

    @property
    def metadata(self) -> dict[str, Any]:
        """Contents of ``run.json``."""
        content = self.read("run.json")
        if not isinstance(content, dict):
            raise IntegrityError(
                "run.json must contain an object", where=str(self.path / "run.json"), hint="Restore it from a copy."
            )
        return content

    def update(self, **entries: Any) -> None:
        """Set entries of ``run.json``."""
        self.write("run.json", {**self.metadata, **entries})

    def read(self, name: str) -> Any:
        """Return the contents of a JSON file of the folder.

        Raises
        ------
        IntegrityError
            The file is missing or damaged.
        """
        try:
            return load_json((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            kind = type(error).__name__
            raise IntegrityError(
                f"failed to read the file ({kind})", where=str(self.path / name), hint="Restore it from a copy."
            ) from None

    def write(self, name: str, content: Any) -> None:
        """Write a JSON file atomically."""
        write_atomically(self.path / name, to_json(content).encode())

    def write_history(self, history: Sequence[Mapping[str, float]], place: str = "") -> None:
        """Write ``history.csv``, below `place`: one row per round, one column per metric."""
        page = io.StringIO()
        columns = list(dict.fromkeys(name for entry in history for name in entry))
        writer = csv.DictWriter(page, columns or ["round"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(history)
        write_atomically(self.path / f"{place}history.csv", page.getvalue().encode())

    def ledgers(self) -> dict[str, Path]:
        """Return the ledger file of every site that has one."""
        files = sorted(self.path.glob("sites/*/ledger.jsonl"))
        return {file.parent.name: file for file in files}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the run; the system releases the lock at the end of this process.

        Raises
        ------
        ConfigurationError
            Another process has locked the run.
        """
        with held(self.path / "run.lock"):
            yield

    def remove_checkpoints(self) -> None:
        """Remove the state that a resume needs: sums of the rounds, small counts included."""
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def discard(self) -> None:
        """Remove the folder and its contents."""
        shutil.rmtree(self.path)


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "study"


def _rename_to_free(hidden: Path, target: Path) -> Path:
    """Rename a folder to the first free of ``target``, ``target-2`` and so on."""
    path, number = target, 1
    while True:
        try:
            return hidden.rename(path)
        except OSError:
            if not path.exists():
                raise
        number += 1
        path = target.with_name(f"{target.name}-{number}")
