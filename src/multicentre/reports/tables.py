"""Tables of the report, as rows of texts for the template."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from multicentre.core.published_counts import MIN_PUBLISHED
from multicentre.estimator.figures import Table
from multicentre.reports.formats import NOTHING, format_bytes, format_column, format_count, format_number, format_total
from multicentre.reports.run_contents import (
    Comparison,
    Disclosure,
    Metric,
    Released,
    RunMetadata,
    Site,
    StudyFlow,
)

# A table of nine columns has about 5 rem per column, room for roughly 12 letters of 0.82 rem.
LONG_WORD = 12
# In 400 pixels, a column of three has room for about four lines of 10 letters.
LONG_CELL = 40
# Longer words in the first column are broken, so that the other columns have room; names of up to 24 letters are not
# broken where there is room for a third of the width.
MAX_LETTERS, MAX_LETTERS_OF_FEW = 18, 24
# Mean width of a letter in em, in regular and in bold face; of digits and of the marks between them in a wide face
# (DejaVu Sans); padding of a cell; width of the smallest column.
LETTER, BOLD_LETTER, DIGIT, MARK, PADDING, SMALLEST = 0.56, 0.68, 0.64, 0.36, 1.0, 4.9
# Width of a table in em of its text: 47 rem of the page at 0.82 rem; an A4 page has 174 mm, 60 em in print.
PAGE_WIDTH = 57.0
# Longer texts of numbers than "1,234.5 (1,200.1 to 1,300.9)" are broken.
LONG_NUMBER = 30
# Tables of up to 16 rows are printed on one page: they take a third of it.
SHORT = 16
HIDDEN = "hidden"
NOT_VERTICAL = ("privacy.sites_per_patient", "run.holdout")


@dataclass(frozen=True)
class PageTable:
    """Table on the page.

    Parameters
    ----------
    caption : str
    columns : sequence of str
    rows : sequence of sequence of str
        The first cell of a row names it.
    numeric : frozenset of int
        Columns that are set flush right.
    code : frozenset of int
        Columns that are set in a fixed-width face.
    total : bool
        The last row is a total.
    groups : mapping of int to (str, str)
        Name and description of the group that begins at a row.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()
    code: frozenset[int] = frozenset()
    total: bool = False
    groups: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    @property
    def parts(self) -> list[PageTable]:
        """The table cut by columns into parts that are whole on the page, each with the first column.

        >>> wide = PageTable("", ["", *"abcdef"], [["age", *["63.4 [55.9, 70.8]"] * 6]], frozenset(range(1, 7)))
        >>> [list(part.columns) for part in wide.parts]
        [['', 'a', 'b', 'c'], ['', 'd', 'e', 'f']]
        """
        room = PAGE_WIDTH - self._widest_word
        widths = [self._width(column) for column in range(1, len(self.columns))]
        if sum(widths) <= room:
            return [self]
        # Parts of about the same width; a single column may be wider than the page, and is then broken.
        share = sum(widths) / math.ceil(sum(widths) / room)
        cuts, filled = [0], 0.0
        for place, width in enumerate(widths):
            is_full = filled + width > room or filled + width / 2 > share
            if is_full and place > cuts[-1]:
                cuts, filled = [*cuts, place], 0.0
            filled += width
        return [self._columns(start + 1, end + 1) for start, end in pairwise([*cuts, len(widths)])]

    @property
    def widths(self) -> list[float]:
        """Least widths of the columns in em."""
        return [self.name_width, *(self._width(column) for column in range(1, len(self.columns)))]

    def _columns(self, start: int, end: int) -> PageTable:
        places = [0, *range(start, end)]
        return replace(
            self,
            columns=[self.columns[place] for place in places],
            rows=[[row[place] for place in places] for row in self.rows],
            numeric=frozenset(at for at, place in enumerate(places) if place in self.numeric),
            code=frozenset(at for at, place in enumerate(places) if place in self.code),
        )

    def _width(self, column: int) -> float:
        """Return the least width of a column in em: of its heading's longest word, and of numbers on one line."""
        word = max((len(word) for word in self.columns[column].split()), default=0)
        widths = [SMALLEST, BOLD_LETTER * min(word, LONG_WORD) + PADDING]
        if column in self.numeric:
            numbers = [row[column] for row in self.rows if len(row[column]) <= LONG_NUMBER]
            widths.append(max(map(_number_width, numbers), default=0.0) + PADDING)
        return max(widths)

    def look(self, column: int) -> str:
        """Return the style classes of a cell; only long numbers and words may be broken."""
        texts = [row[column] for row in self.rows]
        words = [word for text in texts for word in text.split()]
        is_long = any(len(text) > LONG_NUMBER for text in texts) if column in self.numeric else _has_long(words)
        classes = {"number": column in self.numeric, "long": is_long, "code": column in self.code}
        return " ".join(name for name, holds in classes.items() if holds)

    @property
    def is_wide(self) -> bool:
        """True if the table becomes cards on a telephone: more than three columns, or three with long texts."""
        has_long_texts = any(len(text) > LONG_CELL for row in self.rows for text in row[1:])
        return len(self.columns) > 3 or (len(self.columns) == 3 and has_long_texts)

    @property
    def classes(self) -> str:
        """Style classes of the table."""
        chosen = {"cards": self.is_wide, "small": not self.is_wide, "total": self.total}
        return " ".join(name for name, holds in {**chosen, "short": len(self.rows) <= SHORT}.items() if holds)

    @property
    def name_width(self) -> float:
        """Width of the first column in em: of its longest name where there is room, at least of its longest word."""
        letters = min(max((len(row[0]) for row in self.rows), default=0), MAX_LETTERS_OF_FEW)
        room = PAGE_WIDTH - sum(self._width(column) for column in range(1, len(self.columns)))
        return round(max(self._widest_word, min(PADDING + LETTER * letters, room)), 1)

    @property
    def _widest_word(self) -> float:
        longest = max((len(word) for row in self.rows for word in row[0].split()), default=0)
        return PADDING + LETTER * min(longest, MAX_LETTERS)

    def heading_look(self, column: int) -> str:
        """Return the style classes of a column's heading; only a word that is long for a column may be broken."""
        is_long = _has_long(self.columns[column].split())
        return " ".join(name for name, holds in {"number": column in self.numeric, "long": is_long}.items() if holds)


def _has_long(words: Sequence[str]) -> bool:
    return any(len(word) > LONG_WORD for word in words)


def _number_width(text: str) -> float:
    """Return the width of a text of numbers in em."""
    return sum(DIGIT if letter.isalnum() else MARK for letter in text)


def site_table(run: RunMetadata) -> PageTable:
    """Return the patients of every site and part of its data, small counts as a bound."""
    least = max(run.min_patients, MIN_PUBLISHED)
    parts = list(dict.fromkeys(part for site in run.sites for part in site.parts))
    counts = [[site.patients, *(_part_count(site, part, least) for part in parts)] for site in run.sites]
    columns = ["Site", run.counted.capitalize(), *(f"with {part}" for part in parts)]
    subject, those = columns[1], "those"
    if any(site.records not in (None, site.patients) for site in run.sites):
        counts = [[row[0], site.records, *row[1:]] for site, row in zip(run.sites, counts, strict=True)]
        columns.insert(2, "Records")
        subject, those = "Patients and their records", "the records"
    in_parts = f", and {those} with at least one entry in each part of the data" if parts else ""
    caption = f"{subject} by site{in_parts}."
    rows = [[site.name, *_count_cells(row, least)] for site, row in zip(run.sites, counts, strict=True)]
    if run.vertical:
        caption += " The same patients are at several sites: the counts do not add up to a number of patients."
        return PageTable(caption, columns, rows, _after_first(columns))
    totals = [format_total(column, least) for column in zip(*counts, strict=True)]
    return PageTable(caption, columns, [*rows, ["All", *totals]], _after_first(columns), total=True)


def flow_table(flow: StudyFlow) -> PageTable:
    """Return the flow of patients into the analyses: records assessed, left out by reason, and analysed."""
    caption = (
        "Flow of patients. Every site leaves records out once, before all analyses, for the first reason that applies."
    )
    if flow.refused:
        return PageTable(f"{caption} The sites refused the numbers: {flow.refused}", ["Records", "All sites"], [])
    caption += " Small numbers, and those from which they would follow, are not shown."
    reasons, columns = [reason for reason, number in flow.excluded.items() if number != 0], [flow, *flow.sites.values()]
    rows = [
        ["Assessed", *(format_number(one.assessed) for one in columns)],
        *([f"Left out: {reason}", *(format_number(one.excluded[reason]) for one in columns)] for reason in reasons),
        ["Analysed", *(format_number(one.analysed) for one in columns)],
    ]
    names = ["Records", "All sites", *flow.sites]
    return PageTable(caption, names, rows, _after_first(names), total=True)


def study_table(study: Mapping[str, Any], *, vertical: bool = False) -> PageTable:
    """Return every key of the frozen study with its value; aligned patients need not all keys."""
    rows = [row for row in _flat(study) if not (vertical and row[0] in NOT_VERTICAL)]
    return PageTable("The study that every site agreed to.", ["Key", "Value"], rows, code=frozenset({0}))


def comparison_table(comparison: Comparison) -> PageTable:
    """Return each metric as fitted by the federation, on pooled rows, and by the sites alone.

    The metrics have no intervals, so none is marked as the best.
    """
    rows = []
    for metric in comparison.metrics:
        alone = [value for value in metric.site_alone.values() if value is not None and math.isfinite(value)]
        mean = math.fsum(alone) / len(alone) if alone else None
        cells = format_column([metric.federated, metric.pooled, mean, *alone])
        mean_text = f"{cells[2]} ({_range(alone, cells[3:])})" if alone else NOTHING
        rows.append([_metric_name(metric), *cells[:2], mean_text])
    columns = ["Metric", "Federated", "Pooled", "Site alone: mean (range)"]
    caption = (
        f"The same model fitted {_ways(comparison)}{_assessed_on(comparison)}. The metrics have no intervals: "
        "small differences may be due to chance."
    )
    return PageTable(caption, columns, rows, _after_first(columns))


def alone_table(comparison: Comparison) -> Table:
    """Return the metrics of every site alone under those of the federation, as a table that can be cut."""
    sites = dict.fromkeys(site for metric in comparison.metrics for site in metric.site_alone)
    rows: list[list[str | float | None]] = [["federated", *(metric.federated for metric in comparison.metrics)]]
    rows += [[site, *(metric.site_alone.get(site) for metric in comparison.metrics)] for site in sites]
    columns = ["Fitted by", *(_metric_name(metric) for metric in comparison.metrics)]
    return Table("Every site alone", "The first row is the federation's, for reference.", "comparison", columns, rows)


def card_table(disclosure: Disclosure) -> PageTable:
    """Return the fields that the method declares, by analysis if there are several, and by step."""
    lines, purposes = disclosure.card.lines, dict(disclosure.card.steps)
    rows = [
        [
            line.field,
            line.what,
            line.shape or "one value",
            line.unit or NOTHING,
            line.span or NOTHING,
            line.noise or NOTHING,
        ]
        for line in lines
    ]
    groups = [
        (
            f"{line.analysis and line.analysis + ': '}{line.step}",
            # two analyses may have steps of one name, so that the purpose of a line precedes that of its name
            f"{line.when}. Who can see it: {line.seen}. {line.purpose or purposes.get(line.step, '')}".strip(),
        )
        for line in lines
    ]
    caption = "What the method declares: every field computed from patients that leaves a site, by step."
    columns = ["Field", "What it is", "Shape", "Unit", "Range, rounding of the sum", "Noise"]
    used_columns = [j for j in range(len(columns)) if j < 4 or any(row[j] != NOTHING for row in rows)]
    rows = [[row[j] for j in used_columns] for row in rows]
    return PageTable(caption, [columns[j] for j in used_columns], rows, code=frozenset({0}), groups=_groups(groups))


def letter_table(disclosure: Disclosure) -> PageTable:
    """Return the meanings of the letters in the shapes of the fields."""
    letters = disclosure.card.letters
    rows = [
        [one.letter, f"{one.what} ({one.method})" if one.method else one.what, one.number or NOTHING] for one in letters
    ]
    caption = "Letters in the shapes of the fields, and the lengths that the study fixes."
    return PageTable(caption, ["Letter", "Meaning", "Number"], rows, code=frozenset({0}))


def leaving_table(disclosure: Disclosure, min_patients: int) -> PageTable:
    """Return the totals of the releases of each site."""
    sites = [*disclosure.ledgers, *(entry.site for entry in disclosure.released)]
    sites += [entry.site for entry in disclosure.refused]
    rows, counted = [], disclosure.card.counted
    for site in dict.fromkeys(sites):
        releases = [entry for entry in disclosure.released if entry.site == site]
        refusals = sum(entry.site == site for entry in disclosure.refused)
        totals = [sum(entry.times for entry in releases), sum(entry.numbers for entry in releases)]
        size = format_bytes(sum(entry.bytes for entry in releases))
        rows.append([site, *map(format_number, totals), size, _fewest(releases, counted, min_patients), str(refusals)])
    columns = ["Site", "Releases", "Numbers", "Size", f"Fewest {counted}", "Refusals"]
    caption = f"What left each site: released fields, the numbers in them, and the fewest {counted} behind one."
    return PageTable(caption, columns, rows, _after_first(columns))


def released_table(disclosure: Disclosure, min_patients: int) -> PageTable:
    """Return every released field, by site."""
    counted = disclosure.card.counted
    columns = ["Field", "Step", "Times", "Numbers", "Size", f"Fewest {counted}", "Protection"]
    rows = [
        [
            *(entry.field, entry.step),
            *map(format_number, (entry.times, entry.numbers)),
            format_bytes(entry.bytes),
            _fewest([entry], counted, min_patients),
            entry.protection,
        ]
        for entry in disclosure.released
    ]
    groups = [(entry.site, "") for entry in disclosure.released]
    caption = "Every released field, as the sites' ledgers hold it."
    return PageTable(caption, columns, rows, frozenset({2, 3, 4, 5}), frozenset({0, 1}), groups=_groups(groups))


def refused_table(disclosure: Disclosure) -> PageTable:
    """Return the answers that the sites' guards refused."""
    rows = [[entry.site, entry.step, entry.reason] for entry in disclosure.refused]
    return PageTable("Answers that a site's guard refused.", ["Site", "Step", "Reason"], rows, code=frozenset({1}))


def ledger_table(disclosure: Disclosure) -> PageTable:
    """Return the last entry of each ledger."""
    rows = [[site, format_number(head.entries), head.hash] for site, head in disclosure.ledgers.items()]
    caption = "Where each site's ledger ended: its last entry and that entry's SHA-256."
    return PageTable(caption, ["Site", "Entries", "Hash of the last"], rows, frozenset({1}), frozenset({2}))


def _part_count(site: Site, part: str, least: int) -> int | None:
    """Return the number of records with a part of the data; None if it, or the number without, is below `least`."""
    count, everyone = site.parts.get(part, 0), site.patients if site.records is None else site.records
    if count is None or everyone is None:
        return None
    return None if 0 < count < least or 0 < everyone - count < least else count


def _count_cells(counts: Sequence[int | None], least: int) -> list[str]:
    whole = format_count(counts[0], least)
    unknown = whole if whole.startswith("<") else HIDDEN
    return [whole, *(unknown if count is None else format_number(count) for count in counts[1:])]


def _groups(headings: Sequence[tuple[str, str]]) -> dict[int, tuple[str, str]]:
    """Return the groups by their first row; a group begins where the text differs from that of the previous row."""
    return {row: text for row, text in enumerate(headings) if row == 0 or headings[row - 1] != text}


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterable[list[str]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(block, Mapping) for block in value):
            for number, block in enumerate(value, start=1):
                yield from _flat(block, f"{prefix}{key}.{block.get('name', number)}.")
        else:
            yield [f"{prefix}{key}", _plain(value)]


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(_plain(entry) for entry in value) or "none"
    if isinstance(value, Mapping):
        return "; ".join(f"{key} = {_plain(entry)}" for key, entry in value.items())
    return str(value)


def _metric_name(metric: Metric) -> str:
    return f"{metric.label} ({metric.better} is better)"


def _ways(comparison: Comparison) -> str:
    if comparison.patients_of_all_fits is None:
        return "by the federation, on pooled rows, and by every site alone"
    return "by the federation, on the views of all sites joined at one place, and by every site on its own views alone"


def _assessed_on(comparison: Comparison) -> str:
    n_fitted, n_held_out = comparison.patients_of_all_fits, comparison.patients_held_out
    if n_fitted is not None:
        return f", looked at on the {format_number(n_fitted)} patients who are at every site and took part in each fit"
    return "" if n_held_out is None else f", assessed on {format_number(n_held_out)} patients that no fit saw"


def _range(values: Sequence[float], cells: Sequence[str]) -> str:
    ordered = sorted(zip(values, cells, strict=True), key=lambda pair: pair[0])
    return f"{ordered[0][1]} to {ordered[-1][1]}"


def _fewest(entries: Iterable[Released], counted: str, min_patients: int) -> str:
    behind = [entry.patients_min if counted == "patients" else entry.records_min for entry in entries]
    counts = [count for count in behind if count is not None]
    return format_count(min(counts), min_patients) if counts else NOTHING


def _after_first(columns: Sequence[str]) -> frozenset[int]:
    return frozenset(range(1, len(columns)))
