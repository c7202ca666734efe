import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from multicentre.datasets import list_datasets, load_breast_tcga, load_handwritten, load_wisconsin

AT_HAND = {status.name for status in list_datasets() if status.available}


def needs(name):
    return pytest.mark.skipif(name not in AT_HAND, reason=f"MULTICENTRE_DATA names no folder that holds {name}")


def test_wisconsin_is_the_bundled_set_cut_into_views():
    labelled = load_wisconsin()
    bunch = load_breast_cancer()
    np.testing.assert_array_equal(labelled.data.stacked(labelled.data.views), bunch.data)
    assert labelled.data.schema.sizes == {"mean": 10, "standard_error": 10, "worst": 10}
    full = [f"{view} {name}" for view, names in labelled.data.columns.items() for name in names]
    renamed = [
        f"standard_error {name.removesuffix(' error')}" if name.endswith(" error") else name
        for name in bunch.feature_names
    ]
    assert [name.replace("_", " ") for name in full] == [name.replace("_", " ") for name in renamed]
    assert (labelled.labels == "malignant").sum() == 212
    assert ((labelled.labels == "benign") == (bunch.target == 1)).all()
    labelled.data.check_for_fit()


@needs("breast_tcga")
def test_breast_tcga_lacks_protein_in_the_test_part():
    labelled = load_breast_tcga()
    assert labelled.data.schema.sizes == {"mrna": 200, "mirna": 184, "protein": 142}
    assert labelled.data.n_patients_by_view == {"mrna": 220, "mirna": 220, "protein": 150}
    assert not labelled.data.has_missing_entries
    np.testing.assert_array_equal(labelled.parts == "train", labelled.data.patients_with("protein"))
    counts = {
        part: {group: int(((labelled.labels == group) & (labelled.parts == part)).sum()) for group in labelled.groups}
        for part in ("train", "test")
    }
    assert counts == {
        "train": {"Basal": 45, "Her2": 30, "LumA": 75},
        "test": {"Basal": 21, "Her2": 14, "LumA": 35},
    }
    assert labelled.data.ids[0] == "A0FJ"
    labelled.data.check_for_fit(150)
    assert set(labelled.take(np.flatnonzero(labelled.parts == "test")).parts) == {"test"}


@needs("handwritten")
def test_handwritten_has_six_views_of_ten_balanced_digits():
    labelled = load_handwritten()
    assert labelled.data.schema.sizes == {"fou": 76, "fac": 216, "kar": 64, "pix": 240, "zer": 47, "mor": 6}
    assert labelled.groups == tuple("0123456789")
    assert all((labelled.labels == digit).sum() == 200 for digit in labelled.groups)
    assert 0 <= labelled.data.array("pix").min() <= labelled.data.array("pix").max() <= 6
    labelled.data.check_for_fit()
