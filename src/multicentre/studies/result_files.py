"""Results of a run for papers: ``results/*.csv`` and ``figures/*.svg``."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multicentre.core.printable import inert
from multicentre.core.storage import write_atomically
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.figures import Figure, read_figure
from multicentre.estimator.labels import NO_LABELS, Labels

if TYPE_CHECKING:
    import pandas as pd

RESULTS, FIGURES = "results", "figures"
# Name of the main picture of an analysis.
MAIN = "result"
# Most pictures in one folder; cross-validation and sites can add any number of figures.
MAX_PICTURES = 20
_OWNER_ONLY, _READABLE = 0o600, 0o644


def write_results(
    folder: Path, estimator: FederatedEstimator, figures: Sequence[Figure], labels: Labels = NO_LABELS
) -> list[str]:
    """Write the tables of a fitted model as CSV files, and its pictures as SVG files.

    Parameters
    ----------
    folder : Path
        Folder of the analysis.
    estimator : FederatedEstimator
        Fitted model. If sites hold different views of the same patients, only the owner can read the files.
    figures : sequence of Figure
        Figures of the report; tables and small panels are not drawn.
    labels : Labels
        Labels of variables. Tables hold them next to names; pictures show them in place of names.

    Returns
    -------
    list of str
        Names of the tables, the main one first.
    """
    mode = _READABLE if estimator.aligned_by is None else _OWNER_ONLY
    tables = {_slug(name): frame for name, frame in estimator.result_tables().items()}
    for name, frame in tables.items():
        write_atomically(folder / RESULTS / f"{name}.csv", to_csv(frame, labels).encode(), mode=mode, durable=False)
    for name, figure in _pictures(estimator.main_figure(), figures).items():
        write_atomically(folder / FIGURES / f"{name}.svg", draw_svg(labels.figure(figure)), mode=mode, durable=False)
    return list(tables)


def to_csv(frame: pd.DataFrame, labels: Labels = NO_LABELS) -> str:
    r"""Return a table as CSV; the names of its rows are the first columns unless they only number the rows.

    Where a name has a label, the column ``label`` follows the first column. No text is a formula for a spreadsheet, or
    changes the direction of writing.

    Examples
    --------
    >>> import pandas as pd
    >>> to_csv(pd.DataFrame({"hazard_ratio": [1.5]}, index=["age"]))
    'name,hazard_ratio\nage,1.5\n'
    >>> to_csv(pd.DataFrame({"sex": ["=1+1"]}))
    "sex\n'=1+1\n"
    >>> to_csv(pd.DataFrame({"hazard_ratio": [1.5]}, index=["age"]), Labels({"age": "age (years)"}))
    'name,label,hazard_ratio\nage,age (years),1.5\n'
    """
    import pandas as pd

    if not (isinstance(frame.index, pd.RangeIndex) and frame.index.name is None):
        names = [str(name or "name") for name in frame.index.names]
        frame = frame.rename_axis(index=names).reset_index(allow_duplicates=True)
    first = [str(name) for name in frame.iloc[:, 0]] if len(frame.columns) else []
    labelled = [labels.name(name) for name in first]
    if labelled != first and "label" not in frame.columns:
        frame = frame.copy()
        frame.insert(1, "label", labelled)
    plain = frame.map(inert).set_axis([inert(str(name)) for name in frame.columns], axis=1)
    return str(plain.to_csv(index=False, lineterminator="\n"))


def draw_svg(figure: Figure) -> bytes:
    """Return a figure as an SVG document, the same bytes for the same figure."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    from multicentre.estimator.drawing import draw, size_of

    page = io.BytesIO()
    settings: Any = {"svg.hashsalt": "multicentre", "svg.fonttype": "none", "font.size": 9.0}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="matplotlib")  # of a layout with long names
        canvas = Canvas(figsize=size_of(figure), layout="constrained")
        draw(read_figure(figure.to_dict()), canvas.subplots())
        canvas.savefig(page, format="svg", metadata={"Date": None})
    return page.getvalue()


def _pictures(main: Figure, figures: Sequence[Figure]) -> dict[str, Figure]:
    """Return the main picture and the others that can be drawn, by the names of their files."""
    from multicentre.estimator.drawing import can_draw

    pictures = {MAIN: main}
    others = [figure for figure in figures if can_draw(figure) and figure.title != main.title]
    for figure in others[:MAX_PICTURES]:
        name = base = _slug(figure.title)
        number = 1
        while name in pictures:
            number += 1
            name = f"{base}-{number}"
        pictures[name] = figure
    return pictures


def _slug(text: str) -> str:
    return re.sub(r"[^\w]+", "-", text.lower()).strip("-")[:60] or "table"
