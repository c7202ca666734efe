import numpy as np
import pytest

from multicentre.datasets import list_datasets, load_mimic3_demo, load_synpuf500
from multicentre.errors import DataError, IntegrityError

AT_HAND = {status.name for status in list_datasets() if status.available}
LOADERS = {"mimic3_demo": load_mimic3_demo, "synpuf500": load_synpuf500}


def needs(name):
    return pytest.mark.skipif(name not in AT_HAND, reason=f"MULTICENTRE_DATA names no folder that holds {name}")


@needs("mimic3_demo")
def test_mimic_has_its_patients_codes_and_sites():
    labelled = load_mimic3_demo()
    tensor = labelled.tensor
    assert tensor.shape == (100, 164, 541)
    assert tensor.nnz == 7461
    assert tensor.counts.max() == 13
    assert len(np.unique(tensor.coordinates[:, 0])) == 88
    assert tensor.outcomes.sum() == 40
    assert {name: one.n_patients for name, one in labelled.by_site().items()} == {
        "MICU": 54,
        "SICU": 20,
        "CCU": 12,
        "TSICU": 8,
        "CSRU": 6,
    }
    assert tensor.codes["procedure"][0] == "icd9cm-proc:0012"
    assert "icd9cm-dx:00845" in tensor.codes["diagnosis"]
    assert tensor.ids[0] == "10006"
    frequent = [tensor.codes[mode][tensor.patients_by_code(mode).argmax()] for mode in tensor.modes]
    assert frequent == ["icd9cm-proc:3893", "icd9cm-dx:4019"]


@needs("synpuf500")
def test_synpuf_has_two_systems_of_procedures():
    labelled = load_synpuf500()
    tensor = labelled.tensor
    assert tensor.shape == (500, 2260, 5936)
    assert tensor.nnz == 491_236
    assert len(np.unique(tensor.coordinates[:, 0])) == 412
    assert tensor.outcomes.sum() == 14
    assert len(labelled.site_names) == 51
    assert {code.split(":")[0] for code in tensor.codes["procedure"]} == {"hcpcs", "icd9cm-proc"}
    assert {code.split(":")[0] for code in tensor.codes["diagnosis"]} == {"icd9cm-dx"}
    assert all(len(code.split(":")) == 2 for mode in tensor.modes for code in tensor.codes[mode])


@pytest.mark.parametrize("name", LOADERS)
def test_an_absent_set_says_how_to_get_it(name, tmp_path, monkeypatch):
    monkeypatch.delenv("MULTICENTRE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataError, match=f"data set '{name}': the file must be in one of the data folders"):
        LOADERS[name](tmp_path)


@pytest.mark.parametrize("name", LOADERS)
def test_other_contents_are_refused(name, tmp_path):
    (tmp_path / name).mkdir()
    np.savez(tmp_path / name / "tensor30d.npz", patient=np.zeros(3, dtype=np.int32))
    with pytest.raises(IntegrityError, match="the file must have the recorded digest of the data set"):
        LOADERS[name](tmp_path)
