"""Privacy as claimed (section 5.4.4) and as the package's accountant converts the same noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

from multicentre.privacy.conversions import epsilon_bun_steinke, epsilon_of_gdp, epsilon_of_zcdp
from multicentre_papers.dpfact import published
from multicentre_papers.dpfact.plan import Plan
from multicentre_papers.runner.markdown import markdown
from multicentre_papers.runner.section import Claim, Exercise, FitCallback, Row, Section

# Feature factors per epoch, B and C; the paper releases both.
N_FACTORS = 2
COLUMNS = {
    "by_formula": "by the paper's formula",
    "bun_steinke": "the paper's Proposition (Bun-Steinke)",
    "zcdp": "zCDP (Canonne et al.)",
    "exact": "exact (Gaussian)",
}
WHY_NOT_VALID = (
    "No column is a guarantee of the published algorithm. Its proof needs a fixed convex loss with gradients of a "
    "bound L, and a release that depends only on the epoch. Here gradients have no bound; one changed entry of "
    "a patient changes the patient's memberships and so the gradients of all of the patient's entries; the proximal "
    "step joins all patients; memberships and both factors move together; and local factors without noise are "
    "carried from epoch to epoch. Neighbours differ by one entry, not by one patient; and the number of epochs, read "
    "off private data, is itself a release. `DPFact(epsilon=...)` fits under a guarantee for patients instead."
)


def claimed_epsilon(rho: float, delta: float) -> float:
    """Return ``2 sqrt(rho log(1 / delta))``, the paper's reading of its Proposition 2.8, which leaves out ``+ rho``.

    Examples
    --------
    >>> round(claimed_epsilon(0.04, 1e-4), 4)
    1.2139
    """
    return 2.0 * math.sqrt(rho * math.log(1.0 / delta))


def epochs_behind(epsilon: float) -> int:
    """Return the number of epochs that makes the paper's formula give a claimed epsilon.

    Examples
    --------
    >>> epochs_behind(1.2)
    20
    """
    rho = epsilon**2 / (4.0 * math.log(1.0 / published.DELTA))
    return round(rho / (N_FACTORS * published.RHO))


def run(plan: Plan, report: FitCallback) -> list[Row]:
    """Convert the three claims."""
    rows: list[Row] = []
    for name, claimed in published.EPSILON.items():
        epochs = epochs_behind(claimed)
        rho = N_FACTORS * published.RHO * epochs
        rows.append(
            {
                "data": name,
                "claimed": claimed,
                "epochs": epochs,
                "rho": rho,
                "by_formula": claimed_epsilon(rho, published.DELTA),
                "bun_steinke": epsilon_bun_steinke(rho, published.DELTA),
                "zcdp": epsilon_of_zcdp(rho, published.DELTA),
                "exact": epsilon_of_gdp(math.sqrt(2.0 * rho), published.DELTA),
            }
        )
        report(len(rows))
    return rows


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show the conversions."""
    headings = ["data (paper)", "claimed epsilon", "implied epochs", "total rho", *COLUMNS.values()]
    cells = [
        [row["data"], f"{row['claimed']:g}", str(row["epochs"]), f"{row['rho']:.3f}"]
        + [f"{row[name]:.4f}" for name in COLUMNS]
        for row in rows
    ]
    above = max(row["bun_steinke"] / row["by_formula"] for row in rows)
    below = [1.0 - row["exact"] / row["by_formula"] for row in rows]
    intro = (
        f"What noise of rho = {published.RHO:g} a factor and epoch costs at delta {published.DELTA:g}, if Theorem 4.1 "
        "held."
    )
    claims = [
        Claim(
            "the claimed epsilons follow from the paper's conversion",
            above <= 1.0,
            f"it leaves out the term rho: its Proposition gives up to {100 * (above - 1):.1f} % higher",
        ),
        Claim(
            "if the mechanism were sound, the exact conversion would give less than was claimed",
            min(below) > 0,
            f"{100 * min(below):.0f} to {100 * max(below):.0f} % less",
        ),
    ]
    return Section([intro, markdown(headings, cells), WHY_NOT_VALID], claims=claims)


ACCOUNTING = Exercise(
    "accounting", "The claimed privacy (section 5.4.4)", lambda plan: len(published.EPSILON), run, show
)
