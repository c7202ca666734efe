"""How files become tables with an outcome, and that no person is on both sides of a comparison."""

import numpy as np
import pytest

from multicentre.data import TableData
from multicentre.errors import ConfigurationError, DataError
from multicentre.studies.comparison import _split_sites
from multicentre.studies.site_data import read_sites, read_table_site
from multicentre.studies.site_patients import SiteData
from multicentre.studies.study_file import study_from_mapping

RECORDS = """\
born,age,pain,ill
1950-01-31,61,1,yes
,70,2,no
007,55,1,no
"""


def study_of(folder, content=RECORDS, *, identifiers=("born",), **how):
    """Write one site's file and return the study that reads it."""
    (folder / "records.csv").write_text(content, encoding="utf-8")
    table = {"outcome": "ill", "classes": ["no", "yes"], "categories": {"pain": [1, 2]}, **how}
    content = {
        "study": {"name": "x", "method": "fed-xgb-classifier"},
        "data": {"table": table, **({"identifiers": list(identifiers)} if identifiers else {})},
        "sites": {"lyon": {"file": "records.csv"}},
    }
    return study_from_mapping(content, folder=folder)


def test_outcome_columns_and_identifiers_are_read_as_they_are_written(tmp_path):
    (site,) = read_sites(study_of(tmp_path)).values()
    assert site.data.columns == ("age", "pain=1", "pain=2")
    assert (site.data.y.tolist(), site.data.classes, site.labels) == ([1, 0, 0], ("no", "yes"), ("yes", "no", "no"))
    assert site.data.identifier.column("born") == ["1950-01-31", None, "007"]


def test_a_number_to_predict_and_a_reference(tmp_path):
    study = study_of(tmp_path, outcome="age", kind="number", classes=None, columns=["pain"], references={"pain": 2})
    study = study_from_mapping(study.model_dump(by_alias=True, exclude_none=True), folder=tmp_path)
    (site,) = read_sites(study).values()
    assert (site.data.outcome, site.data.y.tolist(), site.data.columns) == ("number", [61.0, 70.0, 55.0], ("pain=1",))
    assert site.labels is None


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ({"outcome": "secret"}, DataError, "'secret' must be a column of the table; it is missing"),
        (
            {"classes": ["no", "maybe"]},
            DataError,
            "y must contain declared classes; got another one for 1 of 3 patients",
        ),
        ({"categories": {"pain": [1]}}, DataError, "pain"),
        ({"references": {"age": 1}}, ConfigurationError, "references must name categories; got 'age'"),
        ({"references": {"pain": 3}}, ConfigurationError, "must be a level of 'pain'; got '3'"),
        ({"kind": "time"}, ConfigurationError, "kind"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, how, kind, said):
    with pytest.raises(kind, match=said):
        read_sites(study_of(tmp_path, **how))


def test_a_study_without_the_table_says_so(tmp_path):
    content = {"study": {"name": "x", "method": "fed-xgb-classifier"}, "sites": {"lyon": {"a": "records.csv"}}}
    with pytest.raises(ConfigurationError, match="must be given for this method"):
        read_table_site(study_from_mapping(content, folder=tmp_path), "lyon")
    events = {"modes": {"procedure": "icd9cm-proc", "diagnosis": "icd9cm-dx"}}
    with pytest.raises(ConfigurationError, match="identifiers must be given with"):
        study_from_mapping({**content, "data": {"identifiers": ["born"], "events": events}}, folder=tmp_path)


def test_records_of_one_person_are_held_out_together():
    rng = np.random.default_rng(0)
    persons = {name: rng.integers(0, 80, 60) for name in ("lyon", "oslo", "rome")}
    sites = {
        name: SiteData(TableData(np.c_[who, rng.normal(size=60)], who % 2, [f" p{one:03d}" for one in who]))
        for name, who in persons.items()
    }
    training, held_out = _split_sites(sites, 0.25, np.random.default_rng(1))
    seen, unseen = ({who for site in part.values() for who in site.data.X[:, 0]} for part in (training, held_out))
    assert not seen & unseen
    assert seen | unseen == set(np.concatenate(list(persons.values())))
    assert 0.2 < len(unseen) / len(seen | unseen) < 0.3
    nameless = {**sites, "bern": SiteData(TableData([[1.0]] * 8, [0, 1] * 4))}
    training, held_out = _split_sites(nameless, 0.25, np.random.default_rng(1))
    assert {len(site.data) for site in held_out.values()} == {15, 2}


def test_a_record_without_an_identifier_is_a_person_apart():
    sites = {"lyon": SiteData(TableData(np.arange(40.0)[:, None], [0, 1] * 20, [None] * 20 + ["a"] * 20))}
    _, held_out = _split_sites(sites, 0.25, np.random.default_rng(2))
    rows = held_out["lyon"].data.X[:, 0]
    assert len(rows[rows >= 20]) in (0, 20)
    assert 4 <= len(rows[rows < 20]) <= 6
