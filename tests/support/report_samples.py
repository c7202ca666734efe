"""A run folder as the runner leaves it, with made-up figures and a figure of every kind."""

import json
from pathlib import Path

import numpy as np

from multicentre.estimator.figures import Bars, Cloud, Densities, Figure, HeatMap, Lines, Panel, Points, Table

SITES = ("lyon", "nice", "porto", "turin", "ghent", "uppsala")
VIEWS = ("clinical", "imaging", "proteins")
FEATURES = tuple(f"{view} {number:02d}" for view in VIEWS for number in range(1, 11))

STUDY = """\
[study]
name = "Three views of cognition"
method = "multiview.FedMvPPCA"
purpose = "Shared latent structure of clinical, imaging and protein measures"

[parameters]
n_components = 4
n_rounds = 60
tolerance = 1e-5

[privacy]
min_patients = 10
secure_sum = true

[sites]
names = ["lyon", "nice", "porto", "turin", "ghent", "uppsala"]
quorum = "all"

[views.clinical]
columns = ["clinical 01", "clinical 02", "clinical 03"]
scale = "federation"
"""


def make_figures(rng: np.random.Generator) -> list[Figure]:
    """Return figures of every kind, of 6 centres, 30 features and 2 groups."""
    rounds = np.arange(1, 61)
    fit = {
        name: (-5200 + 40 * k - 1300 * np.exp(-rounds / (5 + 2 * k))).tolist()
        for k, name in enumerate(["start 1", "start 2", "start 3"])
    }
    criterion = {site: (1.3 + 0.1 * k + 0.06 * (np.arange(1, 9) - 4) ** 2).tolist() for k, site in enumerate(SITES)}
    loadings = rng.uniform(-1, 1, (30, 4))
    correlations = np.tanh(rng.standard_normal((30, 30)))
    holes = [[None if (i + j) % 37 == 0 else float(correlations[i, j]) for j in range(30)] for i in range(30)]
    return [
        _baseline(rng),
        Lines(
            "Log-likelihood",
            "Expected complete log-likelihood of the federation by round, for three starts.",
            "fit",
            "round",
            "log-likelihood",
            rounds.tolist(),
            fit,
            {"tolerance reached": 48},
        ),
        Lines(
            "Choice of the number of components",
            "Mean absolute error of held-out entries; the least was chosen.",
            "fit",
            "components",
            "mean absolute error",
            list(range(1, 9)),
            criterion,
            {"chosen": 4},
        ),
        _clouds(rng),
        HeatMap(
            "Loadings",
            "Loadings of every feature on every component, scaled to at most 1.",
            "model",
            FEATURES,
            ["component 1", "component 2", "component 3", "component 4"],
            loadings.tolist(),
            "scaled loading",
            -1.0,
            1.0,
        ),
        HeatMap(
            "Correlations",
            "Correlations that the model implies; hatched where too few patients have both.",
            "model",
            FEATURES,
            FEATURES,
            holes,
            "correlation",
            -1.0,
            1.0,
        ),
        Bars(
            "Explained variance",
            "Share of variance by view and component, mean over centres; whiskers are one standard deviation.",
            "model",
            "share of variance",
            VIEWS,
            {f"component {k}": rng.uniform(0.05, 0.4, 3).tolist() for k in range(1, 5)},
            {f"component {k}": rng.uniform(0.01, 0.05, 3).tolist() for k in range(1, 5)},
        ),
        Densities("Marginals", "Observed and predicted law of each feature.", "model", _panels(rng)),
        Bars(
            "Error by centre",
            "Mean absolute error of held-out patients at each centre.",
            "comparison",
            "mean absolute error",
            SITES,
            {
                "federated": rng.uniform(0.4, 0.6, len(SITES)).tolist(),
                "site alone": rng.uniform(0.5, 0.9, len(SITES)).tolist(),
            },
            {},
        ),
    ]


def _baseline(rng: np.random.Generator) -> Table:
    rows: list[list[str | float | None]] = [
        [name, *(round(float(value), 3) for value in rng.normal(size=len(SITES)))] for name in FEATURES[:8]
    ]
    rows[2][3] = None
    return Table(
        "Means by centre",
        "Mean of the standardised features; – where fewer than 10.",
        "data",
        ["Feature", *SITES],
        rows,
    )


def _clouds(rng: np.random.Generator) -> Points:
    clouds = [
        Cloud(
            site,
            group,
            (rng.normal(size=25) + 2.2 * (group == "K")).tolist(),
            (rng.normal(size=25) + 0.1 * number).tolist(),
        )
        for number, site in enumerate(SITES)
        for group in ("G", "K")
    ]
    caption = "Posterior means of the simulated patients; colour and fill tell the group, the marker the centre."
    return Points("Latent space", caption, "model", "component 1", "component 2", clouds)


def _panels(rng: np.random.Generator) -> list[Panel]:
    x = np.linspace(-4, 4, 60)
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    panels = []
    for name in FEATURES:
        heights, edges = np.histogram(rng.normal(size=300), bins=14, range=(-4, 4), density=True)
        panels.append(Panel(name, edges.tolist(), heights.tolist(), x.tolist(), density.tolist()))
    return panels


def make_run(sites: tuple[str, ...] = SITES) -> dict[str, object]:
    """Return ``run.json``: the last centre is too small for its count to be shown."""
    return {
        "study": "Three views of cognition",
        "method": "multiview.FedMvPPCA",
        "status": "finished",
        "started": "2026-03-02T09:14:05Z",
        "ended": "2026-03-02T09:15:21Z",
        "seconds": 76.4,
        "seed": 20260302,
        "engine": "in-process",
        "protection": "masked",
        "simulated": True,
        "sites": [
            {
                "name": site,
                "patients": None if k == 5 else 132 - 17 * k,
                "parts": {view: None if k == 5 or (k, j) == (4, 2) else 120 - 17 * k for j, view in enumerate(VIEWS)},
            }
            for k, site in enumerate(sites)
        ],
        "min_patients": 10,
        "quorum": "all",
        "rounds": 60,
        "calls_per_site": 187,
        "bytes_from_sites": 3_480_120,
        "bytes_to_sites": 2_911_004,
        "message": "The tolerance was reached after 48 rounds.",
        "headline": [
            {
                "name": "Held-out error",
                "value": 0.4873,
                "unit": "",
                "meaning": "Mean absolute error of features in "
                "patients that no centre fitted on, in standard deviations.",
            },
            {"name": "Components", "value": 4, "unit": "", "meaning": "Latent dimensions that cross-validation chose."},
            {"name": "Explained variance", "value": 61.2, "unit": "%", "meaning": "Of all views together."},
            {
                "name": "Coverage",
                "value": 0.946,
                "unit": "of 0.95",
                "meaning": "Share of held-out values within their predicted interval.",
            },
        ],
    }


def make_comparison(sites: tuple[str, ...] = SITES) -> dict[str, object]:
    """Return ``comparison.json``."""
    return {
        "metrics": [
            {
                "name": "error",
                "label": "Mean absolute error, held-out patients",
                "better": "lower",
                "federated": 0.4873,
                "pooled": 0.4869,
                "site_alone": {site: 0.52 + 0.04 * k for k, site in enumerate(sites)},
                "note": "",
            },
            {
                "name": "accuracy",
                "label": "Accuracy of groups",
                "better": "higher",
                "federated": 0.913,
                "pooled": None,
                "site_alone": {site: 0.93 - 0.03 * k for k, site in enumerate(sites)},
                "note": "Pooled rows carry no labels here.",
            },
        ]
    }


def make_disclosure(sites: tuple[str, ...] = SITES) -> dict[str, object]:
    """Return ``disclosure.json``."""
    fields = {
        ("describe_views", "count[by name]"): (1, 3, 24),
        ("describe_views", "sums[by name]"): (1, 30, 240),
        ("fit_round", "loadings"): (60, 7200, 57_600),
        ("fit_round", "noise"): (60, 180, 1440),
        ("fit_round", "log_likelihood"): (60, 60, 480),
    }
    lines = [
        {
            "step": step,
            "when": "every round" if times > 1 else "once",
            "field": field,
            "what": "sum over the centre's patients of the sufficient statistics of the view",
            "shape": "d x q array" if field == "loadings" else "",
            "unit": "nats" if field == "log_likelihood" else "",
            "seen": "nobody; only the sum",
        }
        for (step, field), (times, _, _) in fields.items()
    ]
    return {
        "card": {
            "method": "multiview.FedMvPPCA",
            "lines": lines,
            "steps": [["describe_views", "Counts, sums and squares of every feature."], ["fit_round", "One EM step."]],
            "remembers": "the patients' rows; the latent positions of the patients",
            "min_patients": 10,
            "caveat": "a cell of a masked total may be the value of one patient.",
            "sentences": [
                "This site releases totals.",
                "Each value rests on at least 10 patients.",
                "Nobody reads it.",
            ],
            "letters": [
                {"letter": "d", "what": "columns of all views"},
                {"letter": "q", "what": "latent dimensions", "number": "2"},
            ],
            "warnings": ["no differential privacy: sums of many patients are exact."],
        },
        "released": [
            {
                "site": site,
                "step": step,
                "field": field,
                "times": times,
                "numbers": numbers,
                "bytes": size,
                "patients_min": 4 if k == 5 else 120 - 17 * k,
                "protection": "masked",
            }
            for k, site in enumerate(sites)
            for (step, field), (times, numbers, size) in fields.items()
        ],
        "refused": [{"site": sites[-1], "step": "describe_views", "reason": "fewer than 10 patients stand behind it"}],
        "ledgers": {site: {"entries": 187 + k, "hash": f"{k + 10:x}" * 64} for k, site in enumerate(sites)},
    }


def write_run(folder: Path, *, sites: tuple[str, ...] = SITES, seed: int = 0) -> Path:
    """Write a whole run folder and return it."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    environment = {
        "python": "3.11.9",
        "multicentre": "0.1.0",
        "platform": "Linux x86_64",
        "packages": {"numpy": "2.2.1", "scipy": "1.15.0", "scikit-learn": "1.6.0", "pandas": "2.2.3"},
    }
    write_json(folder, "run.json", make_run(sites))
    write_json(folder, "environment.json", environment)
    write_json(folder, "comparison.json", make_comparison(sites))
    write_json(folder, "disclosure.json", make_disclosure(sites))
    write_json(folder, "figures.json", [figure.to_dict() for figure in make_figures(rng)])
    rows = [f"{number},{-5000 - 1000 / number},{1 / number}" for number in range(1, 61)]
    (folder / "history.csv").write_text("\n".join(["round,log_likelihood,change", *rows, ""]), encoding="utf-8")
    return folder


def write_json(folder: Path, name: str, content: object) -> None:
    """Write one JSON file of a run folder."""
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
