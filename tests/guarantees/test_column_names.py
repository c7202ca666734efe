"""Hints name the nearest column only where the names are the caller's; a real site's other columns stay there.

The coordinator proposes a study whose names are close to columns of a hospital's file that the study does not declare,
or that the hospital's policy excludes, and reads every byte of the replies.
"""

import pytest

import multicentre as mc
from multicentre.errors import MulticentreError
from support.real_sites import Hospitals, set_terms
from support.survival_toy import STUDY, write_study

CURVES = STUDY.replace("toy-survival", "kaplan-meier").replace(
    'columns = ["age", "grade", "size"]', 'columns = ["age"]'
)
CURVES = CURVES.replace('categories = {grade = ["I", "II"]}\nreferences = {grade = "I"}\n', "")
SECRET = ("note", "grade", "size")  # columns of the hospitals' files that the study does not declare


def replies_and_error(hospitals, monkeypatch, make):
    replies = []
    answer = hospitals.answer
    monkeypatch.setattr(hospitals, "answer", lambda name, letter: replies.append(answer(name, letter)) or replies[-1])
    with pytest.raises(MulticentreError) as raised, hospitals.federation(secure_sum=True) as federation:
        make().fit(federation)
    error = raised.value
    return b"".join(replies).decode(errors="replace"), "\n".join([str(error), *getattr(error, "__notes__", ())])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('columns = ["age"]', 'columns = ["age", "notes"]'),
        ('columns = ["age"]', 'columns = ["sizes"]'),
        ('id_column = "patient"', 'id_column = "noted"'),
        ('id_column = "patient"', 'id_column = "patient"\nlabel_column = "grades"'),
        ('time = "months"', 'time = "sizee"'),
        ('id_column = "patient"', 'id_column = "patient"\nidentifiers = ["notee"]'),
    ],
)
def test_a_file_that_does_not_fit_tells_the_coordinator_no_other_column(tmp_path, monkeypatch, caplog, old, new):
    assert old in CURVES
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, CURVES.replace(old, new)))
    replies, error = replies_and_error(hospitals, monkeypatch, mc.survival.KaplanMeier)
    assert "cannot open this study" in error
    for text in (replies, error):
        assert "Did you mean" not in text
        assert not [name for name in (*SECRET, "patient", "months") if name in text]
    assert [name for name in SECRET if f"Did you mean '{name}'?" in caplog.text], "the site's own log has the hint"


@pytest.mark.parametrize("group", ["notes", "sizes", "grades"])
def test_a_group_that_is_near_to_an_undeclared_column_has_no_hint(tmp_path, monkeypatch, group):
    text = CURVES.replace("seed = 5\n", f'seed = 5\n\n[parameters]\ngroup = "{group}"\n')
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, text))
    replies, error = replies_and_error(hospitals, monkeypatch, lambda: mc.survival.KaplanMeier(group=group))
    assert "group must be a column or category" in error
    assert "Did you mean" not in error
    assert not [name for name in SECRET if name in (replies + error).replace(group, "")]


def test_a_column_that_every_policy_excludes_is_in_no_hint(tmp_path, monkeypatch):
    text = STUDY.replace("toy-survival", "kaplan-meier").replace(
        "seed = 5\n", 'seed = 5\n\n[parameters]\ngroup = "sizes"\n'
    )
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, text))
    for name in hospitals.names:
        set_terms(hospitals.root / name, '# columns = ["age", "sex"]', 'columns = ["age", "grade"]')
    replies, error = replies_and_error(hospitals, monkeypatch, lambda: mc.survival.KaplanMeier(group="sizes"))
    assert "group must be a column or category" in error
    assert "size" not in (replies + error).replace("sizes", "")


def test_declared_columns_are_named_by_a_hint(tmp_path, monkeypatch):
    text = CURVES.replace("seed = 5\n", 'seed = 5\n\n[parameters]\ngroup = "agee"\n')
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, text))
    _, error = replies_and_error(hospitals, monkeypatch, lambda: mc.survival.KaplanMeier(group="agee"))
    assert "Did you mean 'age'?" in error
