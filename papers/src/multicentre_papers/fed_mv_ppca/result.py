"""Result of a reproduction, and its files."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multicentre.core.storage import write_atomically
from multicentre.studies.installation import describe_environment
from multicentre.studies.serialisation import to_json
from multicentre_papers.fed_mv_ppca import published, tables
from multicentre_papers.fed_mv_ppca.aggregate import Row, Summary, find, summarise
from multicentre_papers.fed_mv_ppca.plan import Plan
from multicentre_papers.fed_mv_ppca.samples import SAMPLES
from multicentre_papers.fed_mv_ppca.selection import Choice, mean_by_candidate, picked
from multicentre_papers.fed_mv_ppca.unmeasured import Imputed
from multicentre_papers.fed_mv_ppca.verdicts import judge_clinical, judge_selection, judge_table, judge_unmeasured
from multicentre_papers.runner.files import write_csv
from multicentre_papers.runner.verdict import Verdict

ROWS, CHOICES, UNMEASURED, SUMMARY, TABLES = "rows.csv", "selection.csv", "unmeasured.csv", "summary.json", "tables.md"
PREAMBLE = (
    f"The columns marked *ADNI* are the published figures. They are of another data set ({published.DATA_SET}), access "
    "to which must be asked for: compare orderings, not values. Errors are in the unit interval of every column; "
    "held-out patients have all their views. Mean ± standard deviation over repetitions. *pooled rows* is the "
    "invariant fit on the same patients in one place with all their views."
)


@dataclass
class ReproductionResult:
    """Fits of a reproduction, with their table and verdicts.

    Attributes
    ----------
    plan : Plan
        Plan of the run.
    folder : Path
        Folder of the files.
    rows : list of Row
        One entry per fit of the table.
    choices : list of Choice
        One entry per fit of the choice of q.
    imputed : list of Imputed
        One entry per fit with a view that was never measured.
    notes : list of str
        Parts that were left out, with the reason.
    seconds : float
        Wall-clock time.
    complete : bool
        Whether all of the plan was run.
    """

    plan: Plan
    folder: Path
    rows: list[Row] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    imputed: list[Imputed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = False

    @property
    def lines(self) -> list[Summary]:
        """The table: mean and standard deviation over repetitions."""
        return summarise(self.rows)

    @property
    def verdicts(self) -> dict[str, list[Verdict]]:
        """Verdicts on the claims, by data set or exercise."""
        lines = self.lines
        judged = {sample: judge_table(sample, lines) for sample in dict.fromkeys(line.sample for line in lines)}
        if self.choices:
            judged["selection"] = judge_selection(self.choices)
        if self.imputed or self.complete:
            judged["breast_tcga"] = judge_unmeasured(self.imputed)
        judged["adni"] = judge_clinical()
        return judged

    def to_dict(self) -> dict[str, Any]:
        """Return the result in dicts, lists, texts and numbers."""
        return {
            "paper": "Balelli, Silva and Lorenzi, IPMI 2021, table 2 and figure 3",
            "plan": dataclasses.asdict(self.plan),
            "budget": self.plan.describe(),
            "seconds": self.seconds,
            "complete": self.complete,
            "environment": describe_environment(),
            "table": [dataclasses.asdict(line) for line in self.lines],
            "published": [
                {"scenario": scenario, "n_sites": n, "method": method, "data": published.DATA_SET}
                | dataclasses.asdict(one)
                for (scenario, n, method), one in published.TABLE_2.items()
            ],
            "selection": {"mean": mean_by_candidate(self.choices), "picked": picked(self.choices)},
            "unmeasured": [dataclasses.asdict(row) for row in self.imputed],
            "verdicts": {name: [dataclasses.asdict(one) for one in many] for name, many in self.verdicts.items()},
            "notes": self.notes,
        }

    def write(self) -> None:
        """Write every file atomically."""
        summary, text = to_json(self.to_dict()), str(self) + "\n"
        write_csv(self.folder / ROWS, [row.flat() for row in self.rows])
        write_csv(self.folder / CHOICES, [dataclasses.asdict(choice) for choice in self.choices])
        write_csv(self.folder / UNMEASURED, [dataclasses.asdict(row) for row in self.imputed])
        write_atomically(self.folder / SUMMARY, summary.encode())
        write_atomically(self.folder / TABLES, text.encode())

    def __str__(self) -> str:
        verdicts = self.verdicts
        parts = [
            "# Fed-mv-PPCA: Table 2 and Figure 3 of Balelli, Silva and Lorenzi (IPMI 2021), on other data",
            PREAMBLE,
            f"Run: {self.plan.describe()}",
        ]
        for sample in dict.fromkeys(row.sample for row in self.rows):
            data_set = SAMPLES[sample]
            parts += [f"## {data_set.label}, q = {data_set.n_components}", f"q: {data_set.why}."]
            parts += [tables.table_of(find(self.lines, sample=sample)), _list(verdicts[sample])]
        if self.choices:
            parts += ["## Choosing q on SD, IID over three centres (Figure 3)"]
            parts += [tables.table_of_selection(self.choices), _list(verdicts["selection"])]
        if "breast_tcga" in verdicts:
            parts += ["## A view that was never measured: breast cancer of TCGA, 70 of 220 patients without protein"]
            parts += [tables.table_of_unmeasured(self.imputed)] if self.imputed else []
            parts += [_list(verdicts["breast_tcga"])]
        parts += ["## The paper's clinical data", _list(verdicts["adni"])]
        parts += ["\n".join(f"* {note}" for note in [*self.notes, f"Files: {self.folder}", f"{self.seconds:.0f} s"])]
        return "\n\n".join(parts)


def _list(verdicts: list[Verdict]) -> str:
    return "\n".join(f"* {verdict}" for verdict in verdicts)
