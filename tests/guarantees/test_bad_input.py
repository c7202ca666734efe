"""Data that cannot be used are named by site, view and column, with a remedy and without a patient's value."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.data import MultiViewData, read_multiview
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    MulticentreError,
    SchemaMismatch,
)
from multicentre_papers.published import FedMvPPCAAsPublished

SECRET = 7243.816
COLUMNS = {"blood": ["iron", "ferritin", "zinc"], "image": ["volume", "area", "depth", "tilt"]}


def frames(n=30, seed=0):
    """Draw the views of a site as tables; a cell of each column is one that a message must not show."""
    rng = np.random.default_rng(seed)
    drawn = {view: pd.DataFrame(rng.standard_normal((n, len(names))), columns=names) for view, names in COLUMNS.items()}
    for frame in drawn.values():
        frame.iloc[0] += SECRET
    return drawn


def with_column(name, values):
    def spoil(folder):
        views = frames()
        views["image"][name] = values
        return MultiViewData(views)

    return spoil


def renamed(folder):
    views = frames()
    views["image"] = views["image"].rename(columns={"tilt": "angle"})
    return MultiViewData(views)


def named_twice(folder):
    views = frames()
    views["image"] = views["image"].rename(columns={"tilt": "area"})
    return MultiViewData(views)


def truncated_parquet(folder):
    files = {view: Path(folder) / f"{view}.parquet" for view in COLUMNS}
    for view, frame in frames().items():
        frame.to_parquet(files[view])
    files["image"].write_bytes(files["image"].read_bytes()[:-200])
    return read_multiview(files)


def csv_with_text(folder):
    files = {view: Path(folder) / f"{view}.csv" for view in COLUMNS}
    for view, frame in frames().items():
        text = frame.astype(object)
        if view == "image":
            text.loc[3, "depth"] = f"about {SECRET}"
        text.to_csv(files[view], index=False)
    return read_multiview(files)


def csv_named_twice(folder):
    file = Path(folder) / "image.csv"
    file.write_text(f"volume,area,area\n{SECRET},2,3\n1,2,4\n")
    return read_multiview({"image": file})


def few(folder):
    return MultiViewData({view: frame.iloc[:2] for view, frame in frames().items()})


def few_with_a_view(folder):
    views = frames()
    views["image"].iloc[2:] = np.nan
    return MultiViewData(views)


def nobody(folder):
    return MultiViewData({view: frame.iloc[:0] for view, frame in frames().items()})


def no_view(folder):
    return MultiViewData({})


def a_patient_without_entries(folder):
    views = frames()
    for frame in views.values():
        frame.iloc[5] = np.nan
    return MultiViewData(views)


def of_other_lengths(folder):
    views = frames()
    return MultiViewData({"blood": views["blood"], "image": views["image"].iloc[:20]})


INFINITE = np.where(np.arange(30) == 4, np.inf, np.linspace(0, SECRET, 30))
MIXED = [f"{SECRET}"] * 29 + ["unknown"]

CASES = {
    "too few patients": (few, DisclosureRefused, ["oslo"], "Pool small sites"),
    "too few patients with a view": (few_with_a_view, DataError, ["oslo", "image"], "Leave the view out"),
    "infinity": (with_column("depth", INFINITE), DataError, ["image", "depth"], ""),
    "non-numeric cell": (with_column("depth", MIXED), DataError, ["image", "depth"], ""),
    "non-numeric cell in a file": (csv_with_text, DataError, ["image", "depth", "image.csv"], ""),
    "other column": (renamed, SchemaMismatch, ["oslo", "image", "tilt", "angle"], "same columns"),
    "column named twice": (named_twice, DataError, ["image", "area"], ""),
    "column named twice in a file": (csv_named_twice, DataError, ["image.csv", "area"], "Rename"),
    "empty site": (nobody, DataError, ["blood"], ""),
    "site without views": (no_view, DataError, [], "at least one view"),
    "patient without entries": (a_patient_without_entries, DataError, ["oslo"], "Remove"),
    "views of other lengths": (of_other_lengths, DataError, ["blood", "image"], "same order"),
    "truncated Parquet file": (truncated_parquet, DataError, ["image.parquet"], "again"),
}


@pytest.mark.parametrize("case", CASES)
def test_errors_on_bad_data_name_a_remedy_and_no_value(case, tmp_path):
    spoil, kind, places, remedy = CASES[case]
    run = tmp_path / "run"
    with pytest.raises(kind) as caught:
        fit(spoil(tmp_path), run)
    message = str(caught.value)
    assert all(place in message for place in places), message
    assert caught.value.hint, message
    assert remedy in caught.value.hint or remedy in message, message
    assert_no_value(caught.value)
    assert not (run / "checkpoints").exists() or not any((run / "checkpoints").rglob("*shared*"))


@pytest.mark.parametrize("q", [3, 4, 9])
def test_dimensions_not_below_the_smallest_view(q, tmp_path):
    with pytest.raises(ConfigurationError, match=r"n_components, view 'blood'.*Use at most 2"):
        fit(MultiViewData(frames()), tmp_path, n_components=q)


def test_too_few_patients_for_the_guard(tmp_path):
    fine = MultiViewData({view: frame.iloc[:9] for view, frame in frames().items()})
    with pytest.raises(DisclosureRefused, match="oslo") as caught:
        fit(fine, tmp_path)
    assert_no_value(caught.value)


def test_a_site_whose_only_view_is_all_missing(tmp_path):
    views = frames()
    views["image"] = views["image"] * np.nan
    with pytest.raises(DataError, match="image"):
        fit(MultiViewData(views), tmp_path)


def test_something_else_than_multi_view_data(tmp_path):
    with pytest.raises(MulticentreError, match="oslo") as caught:
        fit(frames()["blood"], tmp_path)
    assert_no_value(caught.value)


def test_entries_that_are_not_a_number_are_missing_and_fitted(tmp_path):
    views = frames()
    views["image"].iloc[3:6, 1] = np.nan
    assert np.isfinite(fit(MultiViewData(views), tmp_path).training_["mae"])


@pytest.mark.parametrize("value", [SECRET, np.nan], ids=["constant", "all missing"])
def test_a_column_of_no_use_at_one_site_is_fitted_and_at_all_sites_named(value, tmp_path):
    spoilt, alone = with_column("depth", value)(tmp_path), mc.Policy(min_patients=1, min_sites_in_sum=1)
    assert np.isfinite(fit(spoilt, tmp_path / "one", policy=alone).training_["mae"])
    with pytest.raises(DataError, match=r"view 'image', column 'depth'.*Leave the column out at every site") as caught:
        fit(spoilt, tmp_path / "all", lyon=spoilt, policy=alone)
    assert_no_value(caught.value)


@pytest.mark.parametrize("value", [SECRET, np.nan], ids=["constant", "all missing"])
def test_a_site_whose_own_parameters_would_be_undecided_is_named(value, tmp_path):
    spoilt, alone = with_column("depth", value)(tmp_path), mc.Policy(min_patients=1, min_sites_in_sum=1)
    with pytest.raises(DataError, match=r"oslo, view 'image', column 'depth'.*leave the column out") as caught:
        fit(spoilt, tmp_path, policy=alone, kind=FedMvPPCAAsPublished, noise="diagonal")
    assert_no_value(caught.value)


def fit(oslo, folder, n_components=2, lyon=None, policy=None, kind=mc.multiview.FedMvPPCA, **parameters):
    """Fit over a good site, unless it is given, and this one."""
    sites = {"lyon": lyon or MultiViewData(frames(seed=1)), "oslo": oslo}
    federation = mc.Federation.in_process(sites, folder=folder, policy=policy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return kind(n_components, max_iter=5, **parameters).fit(federation)


def assert_no_value(error):
    """Look for the digits of the planted values, however they are written, in the message and its chain."""
    seen = []
    while error is not None:
        seen.append(str(error) if isinstance(error, MulticentreError) else "")
        error = None if error.__suppress_context__ else (error.__cause__ or error.__context__)
    assert not re.search(r"72[34]\d", " ".join(seen)), seen
