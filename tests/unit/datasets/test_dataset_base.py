import gzip
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from multicentre.datasets import base, fetch, list_datasets
from multicentre.datasets.base import arrays_of, digest_arrays, read_archive, read_frame
from multicentre.datasets.sources import SOURCES, Source
from multicentre.errors import ConfigurationError, DataError, IntegrityError, MissingExtra

ARRAYS = {"x": np.arange(6.0).reshape(2, 3), "y": np.array(["a", "b"])}


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("MULTICENTRE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def source():
    return Source("toy", "A toy.", "CC0", "Make it.", "toy/toy.npz", digest_arrays(ARRAYS))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data" / "toy").mkdir(parents=True)
    np.savez(tmp_path / "data" / "toy" / "toy.npz", **ARRAYS)
    return tmp_path / "data"


def test_an_archive_is_found_in_the_argument_then_the_variable(source, folder, monkeypatch, tmp_path):
    assert set(read_archive(source, folder)) == {"x", "y"}
    monkeypatch.setenv("MULTICENTRE_DATA", str(folder))
    np.testing.assert_array_equal(read_archive(source)["x"], ARRAYS["x"])
    assert base.data_folders(tmp_path)[:2] == (tmp_path, folder)


def test_an_archive_is_found_in_the_cache(source, folder, monkeypatch):
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: folder)
    (folder / "datasets").mkdir()
    (folder / "toy").rename(folder / "datasets" / "toy")
    np.testing.assert_array_equal(read_archive(source)["x"], ARRAYS["x"])


def test_a_missing_archive_says_how_to_get_it(source, tmp_path):
    with pytest.raises(
        DataError,
        match="the file must be in one of the data folders",
    ):
        read_archive(source, tmp_path)


def test_a_packed_archive_has_the_same_digest(source, folder):
    np.savez_compressed(folder / "toy" / "toy.npz", **ARRAYS)
    assert set(read_archive(source, folder)) == {"x", "y"}


@pytest.mark.parametrize(
    "changed",
    [
        {**ARRAYS, "x": ARRAYS["x"] + 1e-12},
        {**ARRAYS, "x": ARRAYS["x"].astype(np.float32)},
        {**ARRAYS, "x": ARRAYS["x"].reshape(3, 2)},
        {"x": ARRAYS["x"]},
        {"x": ARRAYS["x"], "z": ARRAYS["y"]},
    ],
)
def test_other_contents_are_refused(source, folder, changed):
    np.savez(folder / "toy" / "toy.npz", **changed)
    with pytest.raises(IntegrityError, match="the file must have the recorded digest of the data set"):
        read_archive(source, folder)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_a_damaged_archive_is_refused(source, folder, share):
    path = folder / "toy" / "toy.npz"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(IntegrityError, match="damaged"):
        read_archive(source, folder)


def test_a_lone_array_is_no_archive(source, folder):
    with (folder / "toy" / "toy.npz").open("wb") as stream:
        np.save(stream, ARRAYS["x"])
    with pytest.raises(IntegrityError, match="damaged"):
        read_archive(source, folder)


def test_objects_are_never_unpickled(source, folder):
    np.savez(folder / "toy" / "toy.npz", x=np.array([{"code": 1}], dtype=object))
    with pytest.raises(IntegrityError, match="damaged"):
        read_archive(source, folder)


def test_the_list_says_what_is_at_hand_and_why(tmp_path):
    listed = {status.name: status for status in list_datasets(tmp_path)}
    assert {name for name, status in listed.items() if status.available and not SOURCES[name].package} == {
        "wisconsin",
        "sd",
        "paper_tensor",
        "planted",
        "survival",
        "duplicated",
        "subspaces",
    }
    assert f"{tmp_path}, " in listed["handwritten"].why
    (tmp_path / "handwritten").mkdir()
    (tmp_path / "handwritten" / "handwritten.npz").touch()
    found = {status.name: status for status in list_datasets(tmp_path)}["handwritten"]
    assert found.available
    assert str(tmp_path) in found.why
    assert all(status.licence and status.description for status in listed.values())


def test_fetch_says_what_to_do(tmp_path):
    assert fetch("sd") == "sd needs no file: simulated; call simulate_sd."
    assert "10.24432/C5HC70" in fetch("handwritten", tmp_path)
    with pytest.raises(ConfigurationError, match=r"name must be one of .*; got 'adni'"):
        fetch("adni")


TABLE = pd.DataFrame({"age": [61, 70], "sex": ["f", None], "weight": [55.5, np.nan]})


@pytest.fixture
def table(folder):
    """Write a table and return its source."""
    TABLE.to_csv(folder / "toy" / "toy.csv.gz", index=False)
    return Source("toy", "A toy.", "CC0", "Make it.", "toy/toy.csv.gz", digest_arrays(arrays_of(TABLE)))


def test_a_table_is_known_by_its_contents(table, folder):
    assert read_frame(table, folder)["age"].tolist() == [61, 70]
    with gzip.open(folder / "toy" / "toy.csv.gz", "wt", compresslevel=1) as stream:
        TABLE.to_csv(stream, index=False)
    assert len(read_frame(table, folder)) == 2
    pytest.importorskip("pyarrow")
    TABLE.to_parquet(folder / "toy" / "toy.parquet")
    assert read_frame(replace(table, file="toy/toy.parquet"), folder)["weight"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    "changed",
    [TABLE.assign(age=[61, 71]), TABLE.assign(sex=["f", "m"]), TABLE[["sex", "age"]], TABLE.iloc[:1], TABLE.iloc[::-1]],
)
def test_a_table_of_other_contents_is_refused(table, folder, changed):
    changed.to_csv(folder / "toy" / "toy.csv.gz", index=False)
    with pytest.raises(IntegrityError, match="the file must have the recorded digest of the data set"):
        read_frame(table, folder)


def test_a_missing_table_says_how_to_get_it(table, tmp_path):
    with pytest.raises(DataError, match="the file must be in one of the data folders"):
        read_frame(table, tmp_path)


@pytest.fixture
def package(table, tmp_path, monkeypatch):
    """Install a package that ships the table and cannot be imported."""
    home = tmp_path / "installed" / "toypackage"
    (home / "data").mkdir(parents=True)
    (home / "__init__.py").write_text("raise RuntimeError('imported')")
    TABLE.to_csv(home / "data" / "toy.csv", index=False)
    monkeypatch.syspath_prepend(tmp_path / "installed")
    return replace(table, file="data/toy.csv", package="toypackage")


def test_a_table_that_a_package_ships_is_read_without_importing_it(package):
    assert read_frame(package)["age"].tolist() == [61, 70]
    assert "toypackage" not in sys.modules


def test_an_absent_package_is_named(package, monkeypatch):
    monkeypatch.setitem(SOURCES, "toy", replace(package, package="absent_package"))
    with pytest.raises(MissingExtra, match="absent_package, which contains the file, must be installed"):
        read_frame(SOURCES["toy"])
    status = {one.name: one for one in list_datasets()}["toy"]
    assert not status.available
    assert status.why == fetch("toy") == "Install it with: pip install absent_package."
    monkeypatch.setitem(SOURCES, "toy", package)
    assert fetch("toy").startswith("toy is found at ")
