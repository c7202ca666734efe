"""Figures and tables of a Fed-mv-PPCA fit (the paper's Figures 3 to 5 among them), on data that the caller holds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from multicentre.data.multiview import MultiViewData
from multicentre.estimator.figures import Cloud, Densities, Figure, HeatMap, Lines, Panel, Points, Table
from multicentre.multiview.ppca.fitted import MvPPCAModel
from multicentre.multiview.ppca.maths.model import Floats

# Bars and groups of fewer patients would show single ones.
MIN_SHOWN = 10
# Columns per view, at equal distances from the first to the last. More would show more of the view in smaller panels.
N_PANELS = 6
# Columns named per latent dimension. More would add weaker loadings and lengthen the lines of the table.
N_LEADING = 5


def show_fit(
    model: MvPPCAModel, sites: Mapping[str, MultiViewData], labels: Mapping[str, Sequence[str]]
) -> list[Figure]:
    """Return the figures of a fitted model.

    Parameters
    ----------
    model : MvPPCAModel
    sites : mapping of str to MultiViewData
        Patients by site; empty where the caller has none.
    labels : mapping of str to sequence of str
        Group of each patient by site; empty where there are none.
    """
    figures: list[Figure] = [convergence(model), explained(model), loadings(model), leading_columns(model)]
    if model.waic_path_:
        figures.insert(1, criteria(model.waic_path_, model.bic_path_, model.n_components_))
    if sites:
        figures += [latent_space(model, sites, labels), *missing_views(model, sites)]
    if model.between_centres_:
        figures.append(between_centres(model))
    return figures


def convergence(model: MvPPCAModel) -> Lines:
    """Log-likelihood per patient, round by round."""
    values = [entry["log_likelihood"] for entry in model.history_]
    phases = [entry["phase"] for entry in model.history_]
    changes = [i for i, (old, new) in enumerate(itertools.pairwise(phases), start=2) if old != new]
    return Lines(
        "Convergence",
        "Log-likelihood per patient over all sites (log posterior where sites have separate parameters) at the "
        "start of each round.",
        "fit",
        "round",
        "log density per patient",
        [float(i + 1) for i in range(len(values))],
        {"log-likelihood": values},
        {"own parameters": float(changes[0])} if changes else {},
    )


def criteria(waic: Mapping[int, float], bic: Mapping[int, float], n_components: int) -> Lines:
    """WAIC and BIC over the number of latent dimensions (Figure 3)."""
    return Lines(
        "WAIC over the number of latent dimensions",
        "Lower is better; the BIC of the same fits is shown next to it. No test data were used.",
        "fit",
        "latent dimensions",
        "criterion",
        [float(q) for q in waic],
        {"WAIC": list(waic.values()), "BIC": list(bic.values())},
        {"chosen": float(n_components)},
    )


def explained(model: MvPPCAModel) -> HeatMap:
    """Variance explained by view and latent dimension."""
    names = list(model.layout.names)
    values = [
        [float(share) for share in model.explained_variance_ratio_[view]] + [model.explained_variance_[view]]
        for view in names
    ]
    columns = [f"x{j + 1}" for j in range(model.n_components_)] + ["all"]
    return HeatMap(
        "Variance explained",
        "Share of each view's variance, over the patients of all sites, that each latent dimension explains, and all "
        "of them together.",
        "model",
        names,
        columns,
        [[None if not np.isfinite(share) else max(share, 0.0) for share in row] for row in values],
        "share",
        0.0,
        1.0,
    )


def loadings(model: MvPPCAModel) -> HeatMap:
    """Loadings of every column, in standard deviations of the column."""
    standard = _standard_loadings(model)
    reach = float(np.abs(standard).max())
    return HeatMap(
        "Loadings",
        "Change of each column, in its standard deviations, for one unit of each latent dimension.",
        "model",
        _column_names(model),
        [f"x{j + 1}" for j in range(model.n_components_)],
        standard.tolist(),
        "standard deviations",
        -reach,
        reach,
    )


def leading_columns(model: MvPPCAModel) -> Table:
    """Columns with the largest loadings on each latent dimension."""
    standard, names = _standard_loadings(model), _column_names(model)
    rows: list[list[str | float | None]] = []
    for j in range(model.n_components_):
        leading = np.argsort(-np.abs(standard[:, j]))[:N_LEADING]
        rows.append([f"x{j + 1}", "; ".join(f"{names[i]} ({standard[i, j]:+.2f})" for i in leading)])
    return Table(
        "Leading columns",
        "The columns that move most with each latent dimension, with their loadings in standard deviations.",
        "model",
        ["latent dimension", "columns"],
        rows,
    )


def latent_space(model: MvPPCAModel, sites: Mapping[str, MultiViewData], labels: Mapping[str, Sequence[str]]) -> Points:
    """First two latent dimensions of each patient, by centre and group (Figure 4a)."""
    clouds = []
    for site, data in sites.items():
        latents = model.transform(data)
        second = latents[:, 1] if latents.shape[1] > 1 else np.zeros(len(latents))
        groups = np.asarray(labels[site]) if site in labels else np.full(len(latents), "all patients")
        for group in dict.fromkeys(groups.tolist()):
            members = groups == group
            if members.sum() >= MIN_SHOWN:
                clouds.append(Cloud(site, str(group), latents[members, 0].tolist(), second[members].tolist()))
    return Points(
        "Latent space",
        "Expected latents of the simulated sites' patients under the global law, by centre and group (the paper's "
        f"Figure 4a); groups of fewer than {MIN_SHOWN} patients at a centre are left out.",
        "model",
        "x1",
        "x2",
        clouds,
    )


def missing_views(model: MvPPCAModel, sites: Mapping[str, MultiViewData]) -> list[Figure]:
    """Predicted law of each view that some centre lacks, against what the others observed (Figures 4b and 5)."""
    lacking = [view for view in model.layout.names if any(view not in data.views for data in sites.values())]
    return [_missing_view(model, view, sites) for view in lacking]


def between_centres(model: MvPPCAModel) -> Table:
    """Standard deviations between centres."""
    return Table(
        "Between centres",
        "Standard deviation between centres of the loadings and of the means, in the units of the fit.",
        "model",
        ["view", "loadings", "means"],
        [[view, spread["loadings"], spread["mean"]] for view, spread in model.between_centres_.items()],
    )


def _missing_view(model: MvPPCAModel, view: str, sites: Mapping[str, MultiViewData]) -> Densities:
    without = {site: data for site, data in sites.items() if view not in data.views}
    observed = np.concatenate([data.array(view) for data in sites.values() if view in data.views])
    guesses = [model.impute(data, view) for data in without.values()]
    mean = np.concatenate([guess.mean for guess in guesses])
    spread = np.sqrt(np.concatenate([guess.variance for guess in guesses]))
    columns = model.schema_.columns[view]
    chosen = np.linspace(0, len(columns) - 1, min(N_PANELS, len(columns))).round().astype(int)
    return Densities(
        f"Predicted law of {view} where it is missing",
        f"Curve: what the global law predicts for the patients of {', '.join(without)}, who lack the view, from their "
        "other views. Bars: what the other centres observed. They differ where the case mix does.",
        "model",
        [_panel(columns[j], observed[:, j], mean[:, j], spread[:, j]) for j in chosen],
    )


def _panel(title: str, observed: Floats, mean: Floats, spread: Floats) -> Panel:
    values = observed[~np.isnan(observed)]
    counts, edges = np.histogram(values, bins=12)
    heights = np.where(counts >= MIN_SHOWN, counts, 0) / (len(values) * np.diff(edges))
    low, high = min(values.min(), (mean - 2 * spread).min()), max(values.max(), (mean + 2 * spread).max())
    x = np.linspace(low, high, 120)
    density = np.exp(-0.5 * ((x[:, None] - mean) / spread) ** 2) / (spread * np.sqrt(2 * np.pi))
    return Panel(title, edges.tolist(), heights.tolist(), x.tolist(), density.mean(axis=1).tolist())


def _standard_loadings(model: MvPPCAModel) -> Floats:
    return model.layout.stack(model.loadings_) / model.deviation_[:, None]


def _column_names(model: MvPPCAModel) -> list[str]:
    schema = model.schema_
    return [f"{view}: {column}" for view in schema.views for column in schema.columns[view]]
