"""Reproduction of a paper: its exercises in order and their output files."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from multicentre.core.rounds import Listener
from multicentre.core.storage import write_atomically
from multicentre.estimator.figures import Figure
from multicentre.studies.installation import describe_environment
from multicentre.studies.serialisation import to_json, to_plain
from multicentre_papers.runner.files import write_csv
from multicentre_papers.runner.loops import loop
from multicentre_papers.runner.section import Exercise, Row, Section

SUMMARY, TEXT = "summary.json", "summary.md"


class Plan(Protocol):
    """Budget of a run: a frozen dataclass of plain values."""

    def describe(self) -> str:
        """Return the budget in a sentence or two."""


P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Paper(Generic[P]):
    """Description of a paper and its exercises.

    Parameters
    ----------
    name : str
        Short name; results go to ``runs/reproduce-<name>``.
    citation, title, preamble : str
        Texts of the report; the title is a heading in Markdown.
    exercises : sequence of Exercise
    published : callable
        Returns the published figures as plain values by table.
    differences : mapping of str to str
        Differences of this reproduction and their reasons.
    """

    name: str
    citation: str
    title: str
    preamble: str
    exercises: Sequence[Exercise[P]]
    published: Callable[[], dict[str, Any]]
    differences: Mapping[str, str]

    def run(self, plan: P, output: Path | None = None, listener: Listener | None = None) -> ReproductionResult[P]:
        """Run the exercises; those completed by an unfinished run of an equal plan in the same folder are reused."""
        progress: Listener = Listener() if listener is None else listener
        folder = Path("runs") / f"reproduce-{self.name}" if output is None else Path(output)
        result = ReproductionResult(self, plan, folder)
        before = read_finished(result.folder / SUMMARY, plan)
        for exercise in self.exercises:
            earlier = before.get(exercise.name)
            result.finished.append(
                _run(exercise, plan, progress)
                if earlier is None
                else Finished(exercise, earlier["rows"], earlier["seconds"])
            )
            result.complete = exercise is self.exercises[-1]
            result.write()
        return result


@dataclass
class Finished(Generic[P]):
    """Rows of one completed exercise.

    Parameters
    ----------
    exercise : Exercise
    rows : list of mapping
    seconds : float
        Wall-clock time.
    """

    exercise: Exercise[P]
    rows: list[Row]
    seconds: float


@dataclass
class ReproductionResult(Generic[P]):
    """Results of a reproduction.

    Attributes
    ----------
    paper : Paper
    plan : Plan
        Plan of the run.
    folder : Path
        Folder of the files.
    finished : list of Finished
        One entry per exercise.
    complete : bool
        True if all exercises were run.
    """

    paper: Paper[P]
    plan: P
    folder: Path
    finished: list[Finished[P]] = field(default_factory=list)
    complete: bool = False

    @property
    def seconds(self) -> float:
        """Wall-clock time of all exercises, including those of a resumed run."""
        return sum(one.seconds for one in self.finished)

    @property
    def notes(self) -> list[str]:
        """Reasons and remedies of the skipped samples."""
        rows = (row for one in self.finished for row in one.rows)
        return list(dict.fromkeys(str(row["skipped"]) for row in rows if row.get("skipped")))

    @property
    def sections(self) -> dict[str, Section]:
        """Report section of every exercise, by title."""
        return {one.exercise.title: one.exercise.show(one.rows, self.plan) for one in self.finished if one.rows}

    def to_dict(self) -> dict[str, Any]:
        """Return the result as dicts, lists, texts and numbers."""
        sections = self.sections
        return {
            "paper": self.paper.citation,
            "plan": plan_as_dict(self.plan),
            "budget": self.plan.describe(),
            "seconds": self.seconds,
            "complete": self.complete,
            "environment": describe_environment(),
            "published": self.paper.published(),
            "exercises": {
                one.exercise.name: {"seconds": one.seconds, "rows": [dict(row) for row in one.rows]}
                for one in self.finished
            },
            "claims": {
                title: [dataclasses.asdict(claim) for claim in section.claims] for title, section in sections.items()
            },
            "differences": dict(self.paper.differences),
            "notes": self.notes,
        }

    def write(self) -> None:
        """Write every file atomically; figures only after the last exercise."""
        summary, text = to_json(self.to_dict()), str(self) + "\n"
        for one in self.finished:
            write_csv(self.folder / f"{one.exercise.name}.csv", one.rows)
        for section in self.sections.values() if self.complete else ():
            _draw(self.folder, section.figures)
        write_atomically(self.folder / SUMMARY, summary.encode())
        write_atomically(self.folder / TEXT, text.encode())

    def __str__(self) -> str:
        parts = [self.paper.title, self.paper.preamble, f"Run: {self.plan.describe()}"]
        for title, section in self.sections.items():
            parts += [f"## {title}", *section.blocks]
            if section.figures:
                parts.append("Figures: " + ", ".join(f"[{name}]({name}.svg)" for name in section.figures))
            parts.append("\n".join(f"* {claim}" for claim in section.claims))
        differences = "\n".join(f"* **{name}.** {text}" for name, text in self.paper.differences.items())
        parts += ["## Differences from the paper", differences]
        parts.append("\n".join(f"* {note}" for note in [*self.notes, f"Files: {self.folder}", f"{self.seconds:.0f} s"]))
        return "\n\n".join(part for part in parts if part)


def plan_as_dict(plan: Plan) -> dict[str, Any]:
    """Return the fields of a plan."""
    return dataclasses.asdict(plan)  # type: ignore[call-overload,no-any-return]


def read_finished(summary: Path, plan: Plan) -> dict[str, Any]:
    """Return the exercises that an interrupted run with an equal plan completed, by name.

    Parameters
    ----------
    summary : Path
        Summary of the earlier run; the file may be absent.
    plan : Plan
        Plan of the new run.
    """
    if not summary.exists():
        return {}
    earlier = json.loads(summary.read_text(encoding="utf-8"))
    if earlier.get("plan") != to_plain(plan_as_dict(plan)) or earlier.get("complete"):
        return {}
    return dict(earlier.get("exercises", {}))


def _run(exercise: Exercise[P], plan: P, progress: Listener) -> Finished[P]:
    began = time.perf_counter()
    with loop(progress, exercise.name, exercise.n_fits(plan)) as report:
        rows = exercise.run(plan, report)
    return Finished(exercise, rows, time.perf_counter() - began)


def _draw(folder: Path, figures: Mapping[str, Figure]) -> None:
    from multicentre.reports.figures import draw

    for name, figure in figures.items():
        write_atomically(folder / f"{name}.svg", draw(figure).encode())
