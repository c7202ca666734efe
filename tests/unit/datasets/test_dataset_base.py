import numpy as np
import pytest

from multicentre.datasets import base, fetch, list_datasets
from multicentre.datasets.base import Source, digest_arrays, read_archive
from multicentre.federation.errors import ConfigurationError, DataError, IntegrityError

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
    with pytest.raises(DataError, match=r"data set 'toy': no folder holds the file\. Make it\. Put it as toy/toy\.npz"):
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
    with pytest.raises(IntegrityError, match="contents are not those"):
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
    assert {name for name, status in listed.items() if status.available} == {
        "wisconsin",
        "sd",
        "paper_tensor",
        "planted",
    }
    assert "Looked in: " + str(tmp_path) in listed["handwritten"].why
    (tmp_path / "handwritten").mkdir()
    (tmp_path / "handwritten" / "handwritten.npz").touch()
    found = {status.name: status for status in list_datasets(tmp_path)}["handwritten"]
    assert found.available
    assert str(tmp_path) in found.why
    assert all(status.licence and status.description for status in listed.values())


def test_fetch_says_what_to_do(tmp_path):
    assert fetch("sd") == "sd needs no file: simulated; call simulate_sd."
    assert "10.24432/C5HC70" in fetch("handwritten", tmp_path)
    with pytest.raises(ConfigurationError, match="no data set is called 'adni'"):
        fetch("adni")
