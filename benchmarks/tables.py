"""Markdown tables and numbers of the generated pages."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DOCS = HERE.parent / "docs"


def read_results(name: str) -> dict[str, Any]:
    """Return the stored results of a script: ``machine`` and ``results``."""
    stored: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return stored


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], n_words: int = 1) -> str:
    """Return a table whose first `n_words` columns are words and whose others are numbers."""
    lines = ["---"] * n_words + ["---:"] * (len(headings) - n_words)
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, lines, *rows))


def number(value: float) -> str:
    """Return three digits; only very small numbers have an exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.0e}"


def machine(facts: Mapping[str, Any]) -> str:
    """Return a sentence about the machine and the versions of a run."""
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    memory = f", {facts['memory_gib']} GiB" if facts.get("memory_gib") else ""
    return (
        f"Measured on {facts['date']}: {facts['cores']} cores ({facts['processor']}){memory}, load {facts['load']:.1f} "
        f"at the end, {facts['system']}, Python {facts['python']}; {packages}. One thread for linear algebra."
    )


def prose(text: str) -> str:
    """Return paragraphs and lists in lines of at most 120 characters; indented blocks stay as they are."""
    blocks = []
    for block in textwrap.dedent(text).strip("\n").split("\n\n"):
        items = re.split(r"\n(?=- )", block)
        blocks.append(block if block.startswith("    ") else "\n".join(map(_fill, items)))
    return "\n\n".join(blocks)


def _fill(item: str) -> str:
    hang = "  " if item.startswith("- ") else ""
    return textwrap.fill(
        " ".join(item.split()), 120, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
    )
