"""Draw the picture of README: survival curves and hazard ratios of the example study, as its report draws them.

Usage: python docs/pictures/example_study.py [FILE]
"""

import re
import sys
import tempfile
from pathlib import Path

import pandas as pd

import multicentre as mc
from multicentre.reports.figures import draw
from multicentre.reports.svg import NARROW

PICTURE = Path(__file__).with_name("example-study.svg")
ALT_TEXT = (
    "Survival curves of two treatments at three hospitals, and the hazard ratios of a Cox model with their intervals."
)
COVARIATES = {
    "columns": ["arm", "age", "sex", "creatinine"],
    "categories": {"arm": ["standard", "new"], "sex": ["f", "m"]},
    "references": {"arm": "standard", "sex": "f"},
}
# Points around and between the drawings.
MARGIN = 16


def example_federation() -> mc.Federation:
    """Return the three simulated hospitals as sites of this process."""
    sites = {}
    with tempfile.TemporaryDirectory() as folder:
        for file in mc.datasets.write_example_study(folder).parent.glob("*/patients.csv"):
            frame = pd.read_csv(file)
            sites[file.parent.name] = mc.data.SurvivalData.from_frame(
                frame, time="months", event="died", unit="months", id_column="patient", **COVARIATES
            )
    return mc.Federation.in_process(sites)


def next_to_each_other(drawings: list[str]) -> str:
    """Return one SVG document with the drawings from left to right, on white, so that dark pages show it as well."""
    parts, left, height = [], float(MARGIN), 0.0
    for drawing in drawings:
        root, _, content = drawing[drawing.index("<svg") :].partition(">")
        size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', root)
        assert size is not None
        content = re.sub(r"<metadata>.*?</metadata>", "", content, flags=re.DOTALL)
        parts.append(f'<svg x="{left:g}" y="{MARGIN}" width="{size[1]}" height="{size[2]}" {size[0]}>{content}')
        left, height = left + float(size[1]) + MARGIN, max(height, float(size[2]) + 2 * MARGIN)
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    whole = f'<svg {names} viewBox="0 0 {left:g} {height:g}" role="img">\n<title>{ALT_TEXT}</title>\n'
    return f'{whole}<rect width="100%" height="100%" fill="white"/>\n{"".join(parts)}</svg>\n'


def picture() -> str:
    """Fit both methods and return the picture."""
    federation = example_federation()
    curves = mc.survival.KaplanMeier("arm").fit(federation)
    cox = mc.survival.FedCox().fit(federation)
    return next_to_each_other([draw(model.main_figure(), NARROW) for model in (curves, cox)])


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    path.write_text(picture(), encoding="utf-8")
    print(path)
