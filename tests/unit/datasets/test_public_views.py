import dataclasses

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.neighbors import KNeighborsClassifier

from multicentre import datasets
from multicentre.datasets.base import digest_arrays
from multicentre.datasets.sources import SOURCES

AT_HAND = {status.name for status in datasets.list_datasets() if status.available}


def needs(name):
    return pytest.mark.skipif(name not in AT_HAND, reason=f"MULTICENTRE_DATA names no folder that holds {name}")


@pytest.fixture
def toy_archive(tmp_path, monkeypatch):
    """Write arrays as if they were those of a data set."""

    def write(name, **arrays):
        path = tmp_path / SOURCES[name].file
        path.parent.mkdir(parents=True)
        np.savez(path, **arrays)
        monkeypatch.setitem(SOURCES, name, dataclasses.replace(SOURCES[name], digest=digest_arrays(arrays)))
        return tmp_path

    return write


def test_sparse_segments_become_dense_and_rows_keep_their_order(toy_archive):
    random = np.random.default_rng(0)
    dense = {f"v{number}": random.random((5, 4)) * (random.random((5, 4)) < 0.5) for number in (1, 2)}
    arrays = {"y": np.array([3, 1, 2, 2, 5])}
    for view, values in dense.items():
        sparse = csr_matrix(values)
        arrays |= {
            f"{view}_data": sparse.data,
            f"{view}_indices": sparse.indices,
            f"{view}_indptr": sparse.indptr,
            f"{view}_shape": np.array(values.shape),
        }
    labelled = datasets.load_bbcsport(toy_archive("bbcsport", **arrays))
    np.testing.assert_array_equal(labelled.data.array("segment_1"), dense["v1"])
    np.testing.assert_array_equal(labelled.data.array("segment_2"), dense["v2"])
    assert labelled.labels.tolist() == ["3", "1", "2", "2", "5"]
    assert labelled.data.ids.tolist() == ["0", "1", "2", "3", "4"]


def test_sonar_s_views_are_twenty_bands_each(toy_archive):
    bands = np.arange(120, dtype=np.float32).reshape(2, 60)
    labelled = datasets.load_sonar(toy_archive("sonar", X=bands, y=np.array([1, 0])))
    assert labelled.labels.tolist() == ["mine", "rock"]
    np.testing.assert_array_equal(labelled.data.stacked(["low", "middle", "high"]), bands)
    assert labelled.data.schema.sizes == {"low": 20, "middle": 20, "high": 20}


def test_categories_of_caltech_are_the_folders_and_no_identifier_tells_them(toy_archive):
    views = {f"v{number}": np.full((2, number), number, dtype=np.float16) for number in range(1, 7)}
    ids = np.array(["stop_sign/image_0001.jpg", "Faces/image_0002.jpg"])
    labelled = datasets.load_caltech101_7(toy_archive("caltech101_7", ids=ids, **views))
    assert labelled.labels.tolist() == ["stop_sign", "Faces"]
    assert labelled.data.ids.tolist() == ["0", "1"]
    assert labelled.data.views == ("gabor", "wavelet", "centrist", "hog", "gist", "lbp")
    assert labelled.data.array("lbp").tolist() == [[6.0] * 6] * 2


FACTS = {
    "bbcsport": ({"segment_1": 3183, "segment_2": 3203}, [62, 104, 193, 124, 61], 0.9),
    "orl": ({"intensity": 4096, "lbp": 3304, "gabor": 6750}, [10] * 40, 0.85),
    "orl4": ({"gist": 512, "lbp": 59, "hog": 864, "centrist": 254}, [10] * 40, 0.85),
    "sonar": ({"low": 20, "middle": 20, "high": 20}, [111, 97], 0.6),
    "caltech101_7": (
        {"gabor": 48, "wavelet": 40, "centrist": 254, "hog": 1984, "gist": 512, "lbp": 928},
        [435, 798, 52, 34, 35, 64, 56],
        0.8,
    ),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in FACTS])
def test_sizes_groups_and_neighbours(name):
    sizes, counts, level = FACTS[name]
    labelled = getattr(datasets, f"load_{name}")()
    assert labelled.name == name
    assert labelled.licence == SOURCES[name].licence
    assert labelled.data.schema.sizes == sizes
    assert sorted(np.unique(labelled.labels, return_counts=True)[1]) == sorted(counts)
    assert labelled.data.ids.tolist() == [str(row) for row in range(len(labelled))]
    assert not labelled.data.has_missing_entries
    order = np.random.default_rng(0).permutation(len(labelled))
    half = len(labelled) // 2
    widest = max(sizes, key=sizes.__getitem__)
    values = labelled.data.array(widest)
    values = values / np.linalg.norm(values, axis=1, keepdims=True).clip(1e-12)
    neighbours = KNeighborsClassifier(1).fit(values[order[:half]], labelled.labels[order[:half]])
    assert neighbours.score(values[order[half:]], labelled.labels[order[half:]]) > level
