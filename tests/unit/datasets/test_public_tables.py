import gzip

import numpy as np
import pytest

from multicentre.datasets import list_datasets, load_heart4, load_record_linkage
from multicentre.datasets.sources import SOURCES
from multicentre.errors import ConfigurationError, DataError, IntegrityError

AT_HAND = {status.name for status in list_datasets() if status.available}
LOADERS = {"record_linkage": load_record_linkage, "heart4": load_heart4}


def needs(name):
    return pytest.mark.skipif(name not in AT_HAND, reason=f"MULTICENTRE_DATA names no folder that holds {name}")


@needs("record_linkage")
def test_record_linkage_knows_its_people():
    data = load_record_linkage()
    assert (len(data), data.outcome, len(data.columns), int(np.isnan(data.X).sum())) == (500, "number", 7, 0)
    assert data.identifier.names == ("person", "first_name", "last_name", "birth_date")
    assert len(set(data.identifier.column("person"))) == 350
    assert data.ids.tolist() == [str(row) for row in range(1, 501)]
    place = data.ids.tolist().index("2")
    assert [data.identifier.column(name)[place] for name in data.identifier.names] == [
        "2",
        "hugo",
        "white",
        "1958-06-09",
    ]
    assert data.y[place] == 134
    assert dict(zip(data.columns, data.X[place], strict=True)) == {
        "sex=M": 1,
        "education=High school graduates, no college": 0,
        "education=Some college or associate degree": 0,
        "education=Bachelor's degree only": 1,
        "education=Advanced degree": 0,
        "income": 72,
        "birth_year": 1958,
    }
    assert data.X[:, 1:5].sum() == 500 - 55
    assert data.X[:, 0].sum() == 267


@needs("record_linkage")
def test_records_of_one_person_agree_more_on_the_birth_date_than_on_the_name():
    identifier = load_record_linkage().identifier
    person = np.array(identifier.column("person"))
    pairs = [(i, j) for i in range(500) for j in range(i) if person[i] == person[j]]
    same = {
        name: np.mean([column[i] == column[j] for i, j in pairs])
        for name in identifier.names
        for column in [identifier.column(name)]
    }
    assert same["person"] == 1
    assert same["birth_date"] > same["last_name"]


@needs("heart4")
def test_fed_heart_has_the_patients_of_flamby():
    sites = load_heart4()
    assert {name: len(site) for name, site in sites.items()} == {
        "cleveland": 303,
        "hungarian": 261,
        "switzerland": 46,
        "va": 130,
    }
    assert {site.columns for site in sites.values()} == {
        (
            *("age", "sex", "cp=2", "cp=3", "cp=4", "trestbps", "chol", "fbs", "restecg=1", "restecg=2"),
            *("thalach", "exang", "oldpeak"),
        )
    }
    assert {site.classes for site in sites.values()} == {("absent", "present")}
    chol = sites["va"].columns.index("chol")
    others = [place for place in range(13) if sites["va"].columns[place] not in ("chol", "trestbps")]
    assert np.isnan(sites["switzerland"].X[:, chol]).all()
    assert not np.isnan(sites["cleveland"].X).any()
    assert not any(np.isnan(site.X[:, others]).any() for site in sites.values())
    assert all(np.nanmin(site.X[:, chol]) > 80 for name, site in sites.items() if name != "switzerland")


@needs("heart4")
def test_the_full_version_has_all_patients_with_their_gaps():
    sites = load_heart4(version="full")
    assert {name: len(site) for name, site in sites.items()} == {
        "cleveland": 303,
        "hungarian": 294,
        "switzerland": 123,
        "va": 200,
    }
    assert [round(site.y.mean(), 3) for site in sites.values()] == [0.459, 0.361, 0.935, 0.745]
    everybody = np.concatenate([site.X for site in sites.values()])
    share_missing = dict(zip(sites["va"].columns, np.isnan(everybody).mean(axis=0).round(2), strict=True))
    assert (share_missing["ca"], share_missing["thal"], share_missing["slope"]) == (0.66, 0.53, 0.34)
    assert share_missing["chol"] == round((172 + 30) / 920, 2)
    assert np.concatenate([site.ids for site in sites.values()]).size == 920
    with pytest.raises(ConfigurationError, match="version must be 'fed_heart' or 'full'; got 'flamby'"):
        load_heart4(version="flamby")


@pytest.mark.parametrize("name", LOADERS)
def test_a_missing_file_says_how_to_get_it(name, tmp_path, monkeypatch):
    monkeypatch.delenv("MULTICENTRE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=SOURCES[name].file):
        LOADERS[name](tmp_path)


@pytest.mark.parametrize("name", LOADERS)
def test_other_contents_are_refused(name, tmp_path):
    file = tmp_path / SOURCES[name].file
    file.parent.mkdir()
    with gzip.open(file, "wt") as stream:
        stream.write("row,age\n0,61\n")
    with pytest.raises(IntegrityError, match="the file must have the recorded digest of the data set"):
        LOADERS[name](tmp_path)
