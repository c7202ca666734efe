"""Draws the pictures of the documentation: packages in layers, the journey of a call, and who talks to whom.

The layers are those of pyproject.toml, which import-linter checks. Run ``python docs/pictures/draw.py``
after a change; a test compares the files with what this script draws.
"""

from __future__ import annotations

import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent

PACKAGES = {
    "cli": "one file per command",
    "extend": "names for authors of methods",
    "testing": "contract tests for methods",
    "reports": "tables, figures, the HTML page",
    "studies": "from a study file to a run folder",
    "validation": "folds, scores, cross-validation",
    "analytics": "Table 1, meta-analysis",
    "clustering": "FedMSGL",
    "multiview": "Fed-mv-PPCA",
    "phenotyping": "DPFact",
    "regression": "linear, logistic, counts, classes",
    "survival": "Cox, curves, forests, boosting",
    "boosting": "FedXGB",
    "federation": "Federation, as users make it",
    "linkage": "the same patient at several sites",
    "estimator": "what all estimators share",
    "datasets": "public and simulated data",
    "likelihood": "rounds of models with a likelihood",
    "formula": "formulas of regression models",
    "data": "tables, views, events, survival",
    "engines": "in process, over requests",
    "progress": "a line per fit",
    "statistics": "quantiles via secure sums, meta-analysis",
    "trees": "tables of nodes, and their growth",
    "privacy": "policy, guard, ledger, secure sums",
    "core": "messages, steps, sessions, runtime",
    "compilation": "compiler of kernels, with a notice",
    "errors": "errors and warnings",
    "lazy": "names imported on first use",
}

CALL = (
    ("coordinator", "the estimator requests a step", "core/session.py", "def sum"),
    ("coordinator", "the engine carries the call", "engines/in_process.py", "def exchange"),
    ("site", "the message is checked", "core/site_runtime.py", "_check_message(call)"),
    ("site", "the call enters the transcript", "core/site_runtime.py", "self._enter(call)"),
    ("site", "the guard checks the policy", "core/site_runtime.py", "self._gate.admit(call)"),
    ("site", "the step runs", "core/site_runtime.py", "run_step("),
    ("site", "the guard checks, adds noise, records", "core/site_runtime.py", "self._gate.release("),
    ("site", "the answer is masked", "core/site_runtime.py", "self._protect("),
    ("coordinator", "masks cancel in the sum", "core/summation.py", "def total"),
)

FONT = "font-family='Helvetica, Arial, sans-serif'"
# Width of the page in points, of a package's box, and the distances that let the longest label fit at 11 points.
WIDTH, ROW, BOX, GAP = 1000, 74, 46, 14


def layers() -> list[list[str]]:
    """Return the packages by layer, from the top down, as pyproject.toml declares them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    arrows = next(contract for contract in contracts if contract["id"] == "arrows")
    return [re.findall(r"\((\w+)\)", layer) for layer in arrows["layers"]]


def layers_picture() -> str:
    """Return the picture of the layers; every arrow points down."""
    rows = layers()
    height = ROW * len(rows) + GAP
    parts = [_open(height, "Layers of the package: each package may import those below it, and none above.")]
    for number, row in enumerate(rows):
        top = GAP + number * ROW
        width = (WIDTH - GAP * (len(row) + 1)) / len(row)
        for place, package in enumerate(row):
            left = GAP + place * (width + GAP)
            parts.append(_box(left, top, width, package, PACKAGES[package]))
        if number + 1 < len(rows):
            parts.append(_arrow(WIDTH / 2, top + BOX, top + ROW))
    return "\n".join([*parts, "</svg>", ""])


def call_picture() -> str:
    """Return the picture of a call's journey from the estimator to the sum."""
    height = ROW * len(CALL) + 2 * GAP + BOX // 2
    half = WIDTH / 2
    parts = [_open(height, "Journey of a call: from the estimator through the site's checks to the sum.")]
    for name, left in (("coordinator", 0.0), ("site", half)):
        parts.append(f"<text x='{left + half / 2:g}' y='16' text-anchor='middle' font-size='13' {FONT}>{name}</text>")
    parts.append(f"<line x1='{half:g}' y1='0' x2='{half:g}' y2='{height}' stroke='#999' stroke-dasharray='4 4'/>")
    for number, (side, what, path, _) in enumerate(CALL):
        left = (half if side == "site" else 0.0) + GAP
        top = 2 * GAP + number * ROW
        parts.append(_box(left, top, half - 2 * GAP, f"{number + 1}. {what}", path))
        if number + 1 < len(CALL):
            middle = half / 2 if side == CALL[number + 1][0] == "coordinator" else half * 1.5
            parts.append(_arrow(middle if side == CALL[number + 1][0] else half, top + BOX, top + ROW))
    return "\n".join([*parts, "</svg>", ""])


def parties_picture() -> str:
    """Return the picture of who talks to whom: sites connect to the coordinator, and never to each other."""
    width, top, below = 210.0, 3 * GAP, 3 * GAP + 3 * ROW
    parts = [
        _open(
            int(below + BOX + 2 * GAP), "Sites send masked sums to the coordinator; patient records stay at the sites."
        )
    ]
    middle = (WIDTH - width) / 2
    parts.append(_box(GAP, top, width, "analyst", "signs the study, reads the results"))
    parts.append(_box(middle, top, width, "coordinator", "sees sums, holds no records"))
    parts.append(_sideways(GAP + width, middle, top + BOX / 2, "study, results"))
    for site, place in (("lyon", 0.0), ("oslo", 0.5), ("graz", 1.0)):
        left = GAP + place * (WIDTH - width - 2 * GAP)
        parts.append(_box(left, below, width, f"hospital {site}", "records, policy, guard, ledger"))
        start, end = left + width / 2, middle + width * (0.25 + place / 2)
        parts.append(f"<line x1='{start:g}' y1='{below:g}' x2='{end:g}' y2='{top + BOX + 8:g}' stroke='#456'/>")
        parts.append(
            _text(
                (start + end) / 2 + (8 if place else -12),
                (below + top + BOX) / 2 + 4,
                "outbound TLS: masked sums",
                "start" if place else "end",
            )
        )
    parts.append(
        _text(WIDTH / 2, below + BOX + 20, "hospitals never connect to each other; their keys travel sealed", "middle")
    )
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f"<text x='{x:g}' y='{y:g}' text-anchor='{anchor}' font-size='11' fill='#456' {FONT}>{escape(text)}</text>"


def _sideways(left: float, right: float, y: float, text: str) -> str:
    line = f"<line x1='{left:g}' y1='{y:g}' x2='{right:g}' y2='{y:g}' stroke='#456'/>"
    return line + "\n" + _text((left + right) / 2, y - 6, text, "middle")


def _open(height: int, title: str) -> str:
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' role='img'>\n"
        f"<title>{escape(title)}</title>\n"
        f"<rect width='{WIDTH}' height='{height}' fill='white'/>"
    )


def _box(left: float, top: float, width: float, title: str, text: str) -> str:
    middle = left + width / 2
    return (
        f"<rect x='{left:g}' y='{top:g}' width='{width:g}' height='{BOX}' rx='5' fill='#eef3f8' stroke='#456'/>\n"
        f"<text x='{middle:g}' y='{top + 19:g}' text-anchor='middle' font-size='14' {FONT}>{escape(title)}</text>\n"
        f"<text x='{middle:g}' y='{top + 36:g}' text-anchor='middle' font-size='11' fill='#456' {FONT}>"
        f"{escape(text)}</text>"
    )


def _arrow(x: float, top: float, bottom: float) -> str:
    return (
        f"<line x1='{x:g}' y1='{top:g}' x2='{x:g}' y2='{bottom - 6:g}' stroke='#456'/>\n"
        f"<path d='M {x - 4:g} {bottom - 8:g} L {x + 4:g} {bottom - 8:g} L {x:g} {bottom:g} z' fill='#456'/>"
    )


PICTURES = {"layers.svg": layers_picture, "call.svg": call_picture, "parties.svg": parties_picture}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
