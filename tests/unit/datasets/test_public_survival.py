import gzip
import importlib.util

import numpy as np
import pytest

from multicentre.datasets import (
    LeakageWarning,
    list_datasets,
    load_gbsg,
    load_lifelines,
    load_metabric,
    load_support2,
    load_tcga_brca,
)
from multicentre.datasets.public_survival import SUPPORT2_LEAKS
from multicentre.datasets.sources import SOURCES
from multicentre.errors import ConfigurationError, DataError, IntegrityError

AT_HAND = {status.name for status in list_datasets() if status.available}
LOADERS = {"metabric": load_metabric, "support2": load_support2, "tcga_brca": load_tcga_brca, "gbsg": load_gbsg}


def needs(name):
    parquet = SOURCES[name].file.endswith(".parquet") and importlib.util.find_spec("pyarrow") is None
    if SOURCES[name].package:
        reason = f"{SOURCES[name].package} is not installed"
    else:
        reason = f"MULTICENTRE_DATA names no folder that holds {name}, or pyarrow is not installed"
    return pytest.mark.skipif(name not in AT_HAND or parquet, reason=reason)


@needs("metabric")
def test_metabric_has_the_patients_of_deepsurv():
    data = load_metabric()
    assert (len(data), data.unit, int(data.event.sum())) == (1904, "months", 1103)
    assert data.columns == (
        *("MKI67", "EGFR", "PGR", "ERBB2"),
        *("hormone_treatment", "radiotherapy", "chemotherapy", "ER_positive", "age_at_diagnosis"),
    )
    assert not np.isnan(data.X).any()
    for column in ("hormone_treatment", "radiotherapy", "chemotherapy", "ER_positive"):
        assert set(data.X[:, data.columns.index(column)]) == {0.0, 1.0}
    assert 21 < data.X[:, -1].min() < data.X[:, -1].max() < 97
    train, test = load_metabric(split="train"), load_metabric(split="test")
    assert (len(train), len(test)) == (1523, 381)
    assert [*train.ids, *test.ids] == data.ids.tolist() == [str(row) for row in range(1904)]
    with pytest.raises(ConfigurationError, match="split must be 'train' or 'test'; got 'validation'"):
        load_metabric(split="validation")


@pytest.mark.slow
@needs("support2")
def test_acceptance_9_support_has_no_leaking_column_unless_asked_for():
    data = load_support2()
    assert (len(data), data.unit, int(data.event.sum()), len(data.columns)) == (9105, "days", 6201, 46)
    assert not {name.partition("=")[0] for name in data.columns} & {"sfdm2", "slos", "charges", "totcst", "avtisst"}
    with pytest.warns(LeakageWarning, match="sfdm2, slos, charges, totcst, avtisst") as caught:
        paper = load_support2(leakage="paper")
    assert caught[0].filename == __file__
    assert issubclass(LeakageWarning, UserWarning)
    assert len(paper.columns) == 55
    assert len({name.partition("=")[0] for name in paper.columns}) == 35
    added = {name.partition("=")[0] for name in set(paper.columns) - set(data.columns)}
    assert added == set(SUPPORT2_LEAKS)
    marked = paper.X[:, paper.columns.index("sfdm2=<2 mo. follow-up")] == 1
    assert marked.sum() == 3123
    assert paper.event[marked].all()
    assert paper.time[marked].max() < 60
    kept = [paper.columns.index(name) for name in data.columns]
    np.testing.assert_array_equal(paper.X[:, kept], data.X)


@needs("support2")
def test_support_keeps_gaps_and_the_commonest_levels():
    data = load_support2()
    share_missing = dict(zip(data.columns, np.isnan(data.X).mean(axis=0), strict=True))
    assert share_missing["adlp"] == pytest.approx(0.62, abs=0.001)
    assert share_missing["urine"] == pytest.approx(0.534, abs=0.001)
    assert share_missing["sex=male"] == share_missing["race=white"] == 0
    count = {name: int(data.X[:, place].sum()) for place, name in enumerate(data.columns) if "=" in name}
    assert count["sex=male"] == 5125
    assert "sex=female" not in count
    assert (count["race=white"], count["race=asian"]) == (7191, 79)
    incomes = [number for name, number in count.items() if name.startswith("income=")]
    assert (len(incomes), sum(incomes)) == (4, 9105 - 2982)
    assert sum(name.startswith("dzgroup=") for name in count) == 7
    assert np.linalg.matrix_rank(data.X[:, [name.startswith(("ca=", "race=")) for name in data.columns]]) == 7
    with pytest.raises(ConfigurationError, match="leakage must be 'drop' or 'paper'; got 'keep'"):
        load_support2(leakage="keep")


@needs("tcga_brca")
def test_tcga_has_the_regions_and_the_split_of_flamby():
    regions = load_tcga_brca()
    assert {name: len(data) for name, data in regions.items()} == {
        "Northeast": 311,
        "South": 196,
        "West": 206,
        "Midwest": 162,
        "Europe": 162,
        "Canada": 51,
    }
    assert {len(data.columns) for data in regions.values()} == {39}
    assert {data.unit for data in regions.values()} == {"days"}
    assert sum(int(data.event.sum()) for data in regions.values()) == 151
    train, test = load_tcga_brca(split="train"), load_tcga_brca(split="test")
    assert list(train) == list(test) == list(regions)
    assert (sum(map(len, train.values())), sum(map(len, test.values()))) == (866, 222)
    for name, data in regions.items():
        assert sorted([*train[name].ids, *test[name].ids]) == sorted(data.ids)


@needs("tcga_brca")
def test_tcga_has_real_hospitals_and_joins_the_small_ones():
    hospitals = load_tcga_brca(by="site")
    assert len(hospitals) == 17
    assert min(map(len, hospitals.values())) == 21
    assert (len(hospitals["Walter Reed"]), len(hospitals["other hospitals"])) == (102, 83)
    assert sum(map(len, hospitals.values())) == 1088
    assert len({one for data in hospitals.values() for one in data.ids}) == 1088
    assert len(load_tcga_brca(by="site", min_patients=1)) == 37
    with pytest.raises(ConfigurationError, match="by must be 'region' or 'site'; got 'country'"):
        load_tcga_brca(by="country")


@needs("gbsg")
def test_gbsg_has_two_cohorts():
    cohorts = load_gbsg()
    assert {name: (len(data), int(data.event.sum())) for name, data in cohorts.items()} == {
        "rotterdam": (1546, 968),
        "gbsg": (686, 299),
    }
    assert {data.columns for data in cohorts.values()} == {tuple(f"x{place}" for place in range(7))}


@pytest.mark.parametrize(
    ("name", "n_patients", "n_events", "n_columns", "unit"),
    [
        pytest.param(*one, marks=needs(one[0]))
        for one in [
            ("rossi", 432, 114, 7, "weeks"),
            ("gbsg2", 686, 299, 9, "days"),
            ("lung", 228, 165, 7, "days"),
        ]
    ],
)
def test_sets_of_lifelines_are_those_expected(name, n_patients, n_events, n_columns, unit):
    data = load_lifelines(name)
    assert (len(data), int(data.event.sum()), len(data.columns), data.unit) == (n_patients, n_events, n_columns, unit)


def test_an_unknown_set_of_lifelines_is_refused():
    with pytest.raises(ConfigurationError, match="rossi, gbsg2, lung"):
        load_lifelines("dialysis")


@pytest.mark.parametrize("name", LOADERS)
def test_an_absent_set_says_how_to_get_it(name, tmp_path, monkeypatch):
    monkeypatch.delenv("MULTICENTRE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataError, match=f"data set '{name}': the file must be in one of the data folders"):
        LOADERS[name](tmp_path)


@pytest.mark.parametrize("name", ["metabric", "tcga_brca"])
def test_other_contents_are_refused(name, tmp_path):
    file = tmp_path / SOURCES[name].file
    file.parent.mkdir()
    file.write_bytes(gzip.compress(b"row_id,time,event\n0,1.0,1\n"))
    with pytest.raises(IntegrityError, match="the file must have the recorded digest of the data set"):
        LOADERS[name](tmp_path)
