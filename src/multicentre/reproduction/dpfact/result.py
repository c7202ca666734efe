"""What a reproduction found, and the files that it leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multicentre.exhibits import Exhibit
from multicentre.federation.storage import write_atomically
from multicentre.reproduction._shared.files import write_csv
from multicentre.reproduction.dpfact import published
from multicentre.reproduction.dpfact.differences import DIFFERENCES
from multicentre.reproduction.dpfact.plan import Plan
from multicentre.reproduction.dpfact.section import Exercise, Row, Section
from multicentre.studies.environment import describe_environment
from multicentre.studies.plain import to_json

SUMMARY, TEXT = "summary.json", "summary.md"
TITLE = "# DPFact: figures and tables of Ma et al. (CIKM 2019), on other data"
PREAMBLE = (
    "Published figures are of data that may not be passed on (MIMIC-III) or are not told apart (samples of DE-SynPUF): "
    "compare orderings, not values. Mean ± standard deviation over seeds. Times and rounds are this run's."
)


@dataclass
class Finished:
    """The rows of one exercise.

    Parameters
    ----------
    exercise : Exercise
    rows : list of mapping
    seconds : float
        Wall-clock time.
    """

    exercise: Exercise
    rows: list[Row]
    seconds: float


@dataclass
class ReproductionResult:
    """Everything that a reproduction measured.

    Attributes
    ----------
    plan : Plan
        What was run.
    folder : Path
        Where the files are.
    finished : list of Finished
        One entry an exercise.
    complete : bool
        Whether all exercises were run.
    """

    plan: Plan
    folder: Path
    finished: list[Finished] = field(default_factory=list)
    complete: bool = False

    @property
    def seconds(self) -> float:
        """Wall-clock time of all exercises, those of a run that was taken up included."""
        return sum(one.seconds for one in self.finished)

    @property
    def notes(self) -> list[str]:
        """What was left out, and how to have it next time."""
        rows = (row for one in self.finished for row in one.rows)
        return list(dict.fromkeys(str(row["skipped"]) for row in rows if row.get("skipped")))

    @property
    def sections(self) -> dict[str, Section]:
        """What is shown of every exercise, by title."""
        return {one.exercise.title: one.exercise.show(one.rows, self.plan) for one in self.finished if one.rows}

    def to_dict(self) -> dict[str, Any]:
        """Return the result in dicts, lists, texts and numbers."""
        sections = self.sections
        return {
            "paper": "Ma, Zhang, Lou, Ho, Xiong and Jiang, CIKM 2019",
            "plan": dataclasses.asdict(self.plan),
            "budget": self.plan.describe(),
            "seconds": self.seconds,
            "complete": self.complete,
            "environment": describe_environment(),
            "published": _published(),
            "exercises": {
                one.exercise.name: {"seconds": one.seconds, "rows": [dict(row) for row in one.rows]}
                for one in self.finished
            },
            "claims": {
                title: [dataclasses.asdict(claim) for claim in section.claims] for title, section in sections.items()
            },
            "differences": DIFFERENCES,
            "notes": self.notes,
        }

    def write(self) -> None:
        """Write every file whole or not at all; figures at the end."""
        summary, text = to_json(self.to_dict()), str(self) + "\n"
        for one in self.finished:
            write_csv(self.folder / f"{one.exercise.name}.csv", one.rows)
        for section in self.sections.values() if self.complete else ():
            _draw(self.folder, section.figures)
        write_atomically(self.folder / SUMMARY, summary.encode())
        write_atomically(self.folder / TEXT, text.encode())

    def __str__(self) -> str:
        parts = [TITLE, PREAMBLE, f"Run: {self.plan.describe()}"]
        for title, section in self.sections.items():
            parts += [f"## {title}", *section.blocks]
            if section.figures:
                parts.append("Figures: " + ", ".join(f"[{name}]({name}.svg)" for name in section.figures))
            parts.append("\n".join(f"* {claim}" for claim in section.claims))
        parts += ["## Differences from the paper", "\n".join(f"* **{k}.** {text}" for k, text in DIFFERENCES.items())]
        parts.append("\n".join(f"* {note}" for note in [*self.notes, f"Files: {self.folder}", f"{self.seconds:.0f} s"]))
        return "\n\n".join(part for part in parts if part)


def _published() -> dict[str, Any]:
    return {
        "table_2_and_8_seconds": published.SECONDS_BY_SITES,
        "table_3_seconds": {"TRIP": published.SECONDS_OF_TRIP, "DPFact": published.SECONDS_OF_DPFACT},
        "table_4_auc": published.AUC,
        "table_5": [dataclasses.asdict(one) for one in published.TABLE_5],
        "table_7": [dataclasses.asdict(one) for one in published.TABLE_7],
        "epsilon": published.EPSILON,
    }


def _draw(folder: Path, figures: Mapping[str, Exhibit]) -> None:
    from multicentre.reports.figures import draw

    for name, shown in figures.items():
        write_atomically(folder / f"{name}.svg", draw(shown).encode())
