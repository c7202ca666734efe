"""Prediction of a view that half of the sites lack, and outcomes after harmonisation, beside pooled methods.

Sections: impute, hospitals, harmonise. Without arguments all are run. Sites are 20, or as many as the set has, and
every second one lacks a view, in turn. The set fcon (FreeSurfer measures of 23 scanners of the 1000 Functional
Connectomes Project) is read from fcon1000.csv in the folder ``--data``: it is in the public repository PCNtoolkit-demo.
Other sets are those of :mod:`multicentre.datasets`.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from measuring import pin_threads, show, write_json
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.linear_model import RidgeClassifier, RidgeCV

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.datasets import load_handwritten, load_heart4, load_wisconsin, simulate_sd
from multicentre.datasets.labelled import LabelledMultiView

Rows = dict[str, np.ndarray]
How = Literal["auto", "model", "regression"]
N_SITES, N_COMPONENTS = 20, 10
MIN_PATIENTS = 10  # of a site of fcon
PENALTIES = np.geomspace(1, 1e4, 13)
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Study:
    """Complete rows by site in standard deviations, the columns of each view, and the view that a site lacks."""

    rows: Rows
    columns: dict[str, slice]
    lacking: dict[str, str]
    age: Rows | None = None

    @property
    def data(self) -> dict[str, MultiViewData]:
        """What the sites have."""
        return {
            site: MultiViewData({v: X[:, c] for v, c in self.columns.items() if self.lacking.get(site) != v})
            for site, X in self.rows.items()
        }

    @property
    def observed(self) -> Rows:
        """Rows with not-a-number for lacking views."""
        hidden = {site: X.copy() for site, X in self.rows.items()}
        for site, view in self.lacking.items():
            hidden[site][:, self.columns[view]] = np.nan
        return hidden


def study_of(rows: Rows, sizes: dict[str, int], age: Rows | None = None) -> Study:
    pooled = np.concatenate(list(rows.values()))
    centre, spread = pooled.mean(axis=0), pooled.std(axis=0)
    bounds = np.cumsum([0, *sizes.values()])
    columns = {view: slice(bounds[k], bounds[k + 1]) for k, view in enumerate(sizes)}
    lacking = {site: list(sizes)[(i // 2) % len(sizes)] for i, site in enumerate(rows) if i % 2}
    return Study({site: (X - centre) / spread for site, X in rows.items()}, columns, lacking, age)


def with_scanners(labelled: LabelledMultiView, views: tuple[str, ...], offset: float, seed: int) -> Study:
    """Deal patients to sites and add to each column of a site an offset of `offset` standard deviations."""
    random = np.random.default_rng(seed)
    X = labelled.data.stacked(list(views))
    sites = np.array_split(random.permutation(len(X)), N_SITES)
    shift = offset * X.std(axis=0)
    rows = {f"site-{i:02d}": X[each] + shift * random.standard_normal(X.shape[1]) for i, each in enumerate(sites)}
    return study_of(rows, {view: len(labelled.data.columns[view]) for view in views})


def fcon(folder: Path | None) -> Study | None:
    """Thickness of both hemispheres and volumes at the 20 largest sites."""
    path = folder / "fcon1000.csv" if folder else None
    if path is None or not path.exists():
        return None
    import pandas as pd

    frame = pd.read_csv(path)
    sides = {f"{side}h": [c for c in frame if c.startswith(f"{side}h_") and c.endswith("thickness")] for side in "lr"}
    volumes = [c for c in frame if c.startswith(("Left-", "Right-", "CC_", "Brain-Stem", "3rd", "4th", "CSF"))]
    views = {**sides, "volumes": [c for c in volumes if not any(x in c for x in ("vessel", "WM-hypo", "non-WM"))]}
    names = [name for columns in views.values() for name in columns]
    frame = frame.dropna(subset=[*names, "age"])
    counts = frame["site"].value_counts()
    sites = sorted(counts[counts >= MIN_PATIENTS].index[:N_SITES])
    rows = {site: frame.loc[frame["site"] == site, names].to_numpy(float) for site in sites}
    age = {site: frame.loc[frame["site"] == site, "age"].to_numpy(float) for site in sites}
    return study_of(rows, {view: len(columns) for view, columns in views.items()}, age)


def sets_of(folder: Path | None, seed: int) -> dict[str, Study]:
    digits, wisconsin = load_handwritten(), load_wisconsin()
    studies = {
        "simulated, offsets .5": with_scanners(
            simulate_sd(random_state=seed, shift="mild", n_patients=1200), ("view_1", "view_2", "view_3"), 0.5, seed
        ),
        "wisconsin, offsets .5": with_scanners(wisconsin, wisconsin.data.views, 0.5, seed),
        "wisconsin, none": with_scanners(wisconsin, wisconsin.data.views, 0.0, seed),
        "digits, offsets .5": with_scanners(digits, ("fou", "kar", "zer"), 0.5, seed),
        "digits, offsets 1": with_scanners(digits, ("fou", "kar", "zer"), 1.0, seed),
    }
    real = fcon(folder) if seed == SEEDS[0] else None
    return studies if real is None else {**studies, "fcon, 20 real sites": real}


def fit(study: Study, **parameters: object) -> mc.multiview.FedMvPPCA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = mc.multiview.FedMvPPCA(N_COMPONENTS, scale="feature", small_views=True, **parameters)
        return model.fit(mc.Federation.in_process(study.data))


def error_of(study: Study, predict: Callable[[str, str], np.ndarray]) -> float:
    """Mean absolute error over the patients of sites that lack a view, in standard deviations."""
    errors = [
        np.abs(predict(site, view) - study.rows[site][:, study.columns[view]]).mean(axis=1)
        for site, view in study.lacking.items()
    ]
    return float(np.concatenate(errors).mean())


def pooled_predictor(study: Study, kind: str) -> Callable[[str, str], np.ndarray]:
    """Methods on the pooled rows of the sites that lack nothing."""
    complete = np.concatenate([X for site, X in study.rows.items() if site not in study.lacking])
    every = np.concatenate(list(study.observed.values()))

    def predict(site: str, view: str) -> np.ndarray:
        wanted = np.zeros(complete.shape[1], dtype=bool)
        wanted[study.columns[view]] = True
        X = study.rows[site][:, ~wanted]
        if kind == "column mean":
            return np.nanmean(every[:, wanted], axis=0)[None]
        if kind == "ridge":
            return RidgeCV(PENALTIES).fit(complete[:, ~wanted], complete[:, wanted]).predict(X)
        model = (PCA if kind == "PPCA" else FactorAnalysis)(N_COMPONENTS).fit(complete)
        joint = model.get_covariance()
        gain = np.linalg.solve(joint[np.ix_(~wanted, ~wanted)], joint[np.ix_(~wanted, wanted)])
        return model.mean_[wanted] + (X - model.mean_[~wanted]) @ gain

    return predict


def mofa_predictor(study: Study) -> Callable[[str, str], np.ndarray] | None:
    """Reconstruction by mofapy2 from pooled rows, sites as they are; None where it is not installed."""
    try:
        from mofapy2.run.entry_point import entry_point
    except ImportError:
        return None
    import contextlib
    import io

    X = np.concatenate(list(study.observed.values()))
    entry = entry_point()
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        entry.set_data_options(scale_views=False)
        entry.set_data_matrix([[X[:, c]] for c in study.columns.values()])
        entry.set_model_options(factors=N_COMPONENTS)
        entry.set_train_options(iter=500, convergence_mode="fast", seed=1, quiet=True)
        entry.build()
        entry.run()
    nodes = entry.model.nodes
    latents, loadings = nodes["Z"].getExpectation(), nodes["W"].getExpectation()
    starts = dict(zip(study.rows, np.cumsum([0, *(len(each) for each in study.rows.values())]), strict=False))
    views = list(study.columns)

    def predict(site: str, view: str) -> np.ndarray:
        members = slice(starts[site], starts[site] + len(study.rows[site]))
        rebuilt = latents[members] @ loadings[views.index(view)].T
        return rebuilt + np.nanmean(X[:, study.columns[view]], axis=0)

    return predict


def fitted_predictor(study: Study, model: mc.multiview.FedMvPPCA, how: How) -> Callable[[str, str], np.ndarray]:
    data = study.data
    return lambda site, view: model.impute(data[site], view, how=how).mean


def coverage_of(study: Study, model: mc.multiview.FedMvPPCA) -> float:
    inside = []
    for site, view in study.lacking.items():
        low, high = model.impute(study.data[site], view).interval(0.9)
        truth = study.rows[site][:, study.columns[view]]
        inside.append(((truth >= low) & (truth <= high)).mean(axis=1))
    return float(np.concatenate(inside).mean())


def measure_imputation(folder: Path | None) -> dict[str, dict[str, list[float]]]:
    """Errors and coverage by set and method, one value per seed."""
    measured: dict[str, dict[str, list[float]]] = {}
    for seed in SEEDS:
        for name, study in sets_of(folder, seed).items():
            values = measured.setdefault(name, {})
            predictors = {kind: pooled_predictor(study, kind) for kind in ("column mean", "ridge", "PPCA", "FA")}
            mofa = mofa_predictor(study)
            if mofa:
                predictors["mofapy2"] = mofa
            model, plain = fit(study), fit(study, site_intercepts=False)
            predictors |= {how: fitted_predictor(study, model, how) for how in ("auto", "model", "regression")}
            predictors["no intercepts"] = fitted_predictor(study, plain, "model")
            for kind, predictor in predictors.items():
                values.setdefault(kind, []).append(error_of(study, predictor))
            values.setdefault("coverage", []).append(coverage_of(study, model))
    return measured


def measure_hospitals() -> dict[str, float]:
    """Predict each half of the columns at each hospital of heart4 from the other half, as if it had been lacking."""
    tables = load_heart4()
    names = next(iter(tables.values())).columns
    frames = {site: np.asarray(table.X, dtype=np.float64) for site, table in tables.items()}
    common = [
        j
        for j in range(len(names))
        if all(np.isfinite(X[:, j]).mean() > 0.5 and np.nanstd(X[:, j]) > 0 for X in frames.values())
    ]
    pooled = np.concatenate(list(frames.values()))[:, common]
    centre, spread = np.nanmean(pooled, axis=0), np.nanstd(pooled, axis=0)
    rows = {site: (X[:, common] - centre) / spread for site, X in frames.items()}
    half = len(common) // 2
    columns = {"first": slice(0, half), "second": slice(half, len(common))}
    found: dict[str, list[float]] = {"default": [], "column mean": [], "ridge": [], "coverage": []}
    for site, (view, wanted) in itertools.product(rows, columns.items()):
        study = Study(rows, columns, {site: view})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = mc.multiview.FedMvPPCA(2, scale="feature", small_views=True)
            guess = model.fit(mc.Federation.in_process(study.data)).impute(study.data[site], view)
        others = np.nan_to_num(np.concatenate([X for name, X in rows.items() if name != site]))
        (rest,) = [c for name, c in columns.items() if name != view]
        truth = rows[site][:, wanted]
        ridge = RidgeCV(PENALTIES).fit(others[:, rest], others[:, wanted]).predict(np.nan_to_num(rows[site][:, rest]))
        low, high = guess.interval(0.9)
        held = np.isfinite(truth)
        found["default"].append(np.abs(guess.mean - truth)[held].mean())
        found["column mean"].append(np.abs(others[:, wanted].mean(axis=0) - truth)[held].mean())
        found["ridge"].append(np.abs(ridge - truth)[held].mean())
        found["coverage"].append(((truth >= low) & (truth <= high))[held].mean())
    return {name: float(np.mean(values)) for name, values in found.items()}


def age_error(rows: Rows, age: Rows) -> float:
    """Mean absolute error of age at a site from a ridge regression on the others, in years."""
    errors = []
    for site in rows:
        others = [each for each in rows if each != site]
        model = RidgeCV(PENALTIES).fit(
            np.concatenate([rows[each] for each in others]), np.concatenate([age[each] for each in others])
        )
        errors.append(np.abs(model.predict(rows[site]) - age[site]))
    return float(np.concatenate(errors).mean())


def location_scale(rows: Rows) -> Rows:
    """Bring each column of each site to the pooled mean and the pooled within-site deviation."""
    within = np.sqrt(np.concatenate([X - X.mean(axis=0) for X in rows.values()]).var(axis=0))
    return {site: (X - X.mean(axis=0)) / X.std(axis=0) * within for site, X in rows.items()}


def site_accuracy(rows: Rows) -> float:
    """Share of patients whose site linear discriminant analysis finds, in five-fold cross-validation."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.model_selection import cross_val_score

    labels = np.concatenate([[site] * len(X) for site, X in rows.items()])
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)
    return float(cross_val_score(model, np.concatenate(list(rows.values())), labels, cv=5).mean())


def label_error(rows: Rows, labels: Rows) -> float:
    """Share of patients at a site whose class a ridge classifier on the other sites misses."""
    wrong = []
    for site in rows:
        others = [each for each in rows if each != site]
        model = RidgeClassifier(alpha=10.0).fit(
            np.concatenate([rows[each] for each in others]), np.concatenate([labels[each] for each in others])
        )
        wrong.append(model.predict(rows[site]) != labels[site])
    return float(np.concatenate(wrong).mean())


def digits_by_site(*, skewed: bool) -> tuple[Study, Rows]:
    """Deal digits to ten sites with offsets of half a deviation, at random or four of the ten classes to each."""
    labelled, random = load_handwritten(), np.random.default_rng(0)
    X, labels = labelled.data.stacked(["fou", "kar", "zer"]), np.asarray(labelled.labels)
    site_of = random.integers(0, 10, len(X))
    if skewed:
        number = np.unique(labels, return_inverse=True)[1]
        site_of = (number + random.integers(0, 4, len(X))) % 10
    shift = 0.5 * X.std(axis=0)
    rows = {f"site-{i}": X[site_of == i] + shift * random.standard_normal(X.shape[1]) for i in range(10)}
    sizes = {view: len(labelled.data.columns[view]) for view in ("fou", "kar", "zer")}
    study = study_of(rows, sizes)
    return Study(study.rows, study.columns, {}), {f"site-{i}": labels[site_of == i] for i in range(10)}


def harmonise_all(study: Study) -> dict[str, Rows]:
    """Rows as they are, by location and scale, and by each fit."""
    harmonised = {"raw": study.rows, "location and scale": location_scale(study.rows)}
    fits: dict[str, dict[str, object]] = {"invariant": {}}
    fits |= {f"hierarchical, {n} rounds": {"method": "hierarchical", "max_iter": n} for n in (5, 15, 40)}
    for name, parameters in fits.items():
        model = fit(study, **parameters)
        harmonised[name] = {
            site: model.harmonise(data).stacked(list(study.columns)) for site, data in study.data.items()
        }
    return harmonised


def measure_harmonisation(folder: Path | None) -> dict[str, dict[str, dict[str, float]]]:
    """Error of an outcome at a left-out site, and accuracy of the site, by set and way to harmonise."""
    measured = {}
    for name, skewed in (("digits, equal case mix", False), ("digits, four classes a site", True)):
        study, labels = digits_by_site(skewed=skewed)
        measured[name] = {
            way: {"error": label_error(rows, labels), "site": site_accuracy(rows)}
            for way, rows in harmonise_all(study).items()
        }
    real = fcon(folder)
    if real is not None and real.age is not None:
        study = Study(real.rows, real.columns, {})
        measured["fcon, years of age"] = {
            way: {"error": age_error(rows, real.age), "site": site_accuracy(rows)}
            for way, rows in harmonise_all(study).items()
        }
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[[], "impute", "hospitals", "harmonise"], help="default: all")
    parser.add_argument("--data", type=Path, help="folder of fcon1000.csv")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    pin_threads()
    results: dict[str, object] = {}
    for section in given.sections or ("impute", "hospitals", "harmonise"):
        if section == "impute":
            imputed = measure_imputation(given.data)
            names = list(next(iter(imputed.values())))
            lines = [
                [name, *(f"{np.mean(values[kind]):.3f} ± {np.std(values[kind]):.3f}" for kind in names)]
                for name, values in imputed.items()
            ]
            show("Mean absolute error of lacking views, standard deviations", ["set", *names], lines)
            results["impute"] = imputed
        elif section == "hospitals":
            hospitals = measure_hospitals()
            show(
                "A half of the columns at one of four hospitals (heart4)",
                list(hospitals),
                [[f"{value:.3f}" for value in hospitals.values()]],
            )
            results["hospitals"] = hospitals
        else:
            measured = measure_harmonisation(given.data)
            lines = [
                [name, way, f"{one['error']:.3f}", f"{one['site']:.3f}"]
                for name, ways in measured.items()
                for way, one in ways.items()
            ]
            show("Outcome at a left-out site, accuracy of the site", ["set", "rows", "error", "site"], lines)
            results["harmonise"] = measured
    write_json(given.json, results)


if __name__ == "__main__":
    main()
