"""Brief of a study: what a steward reads before the fields."""

import pytest

from multicentre.studies.brief import brief_of
from multicentre.studies.cross_validation import needs_pseudonym_key
from multicentre.studies.disclosure_cards import card_maker, study_card
from multicentre.studies.policy_conflicts import refused_at_new_sites
from multicentre.studies.study_file import study_from_mapping

COLUMNS = ["age", "sex", "heart_rate"]


def study(**changes):
    content = {
        "study": {"name": "catheter", "description": "Does catheterisation change survival?", "exposure": "sex"},
        "analysis": [{"name": "table1", "method": "describe"}, {"name": "cox", "method": "fed-cox", "question": "Why"}],
        "data": {
            "id_column": "patient",
            "labels": {"heart_rate": "heart rate (1/min)"},
            "survival": {
                "time": "days",
                "event": "died",
                "unit": "days",
                "columns": COLUMNS,
                "categories": {"sex": ["f", "m"]},
                "references": {"sex": "f"},
            },
            "table": {"outcome": "relapse", "columns": COLUMNS, "categories": {"sex": ["f", "m"]}},
        },
        "sites": {site: {"file": f"{site}.csv"} for site in ("lyon", "oslo", "porto")},
    }
    return study_from_mapping({**content, **changes})


def brief(one, **options):
    return brief_of(one, card_maker(one), **options)


def test_every_variable_is_listed_with_its_role_and_the_analyses_that_use_it():
    variables = {one.name: one for one in brief(study()).variables}
    assert set(variables) == {"patient", "days", "died", "relapse", *COLUMNS}
    assert (variables["heart_rate"].label, variables["heart_rate"].unit) == ("heart rate (1/min)", "1/min")
    assert (variables["sex"].role, variables["sex"].levels) == ("exposure", ("f", "m"))
    assert variables["days"].analyses == ("cox",)
    assert variables["relapse"].analyses == ("table1",)
    assert variables["age"].analyses == ()


def test_the_text_begins_with_the_question_and_fits_a_screen():
    lines = str(brief(study(), asked_by="Ada", files={"file": "/data/lyon.csv"})).splitlines()
    words = " ".join(" ".join(lines).split())
    assert "Does catheterisation change survival?" in lines[1]
    for wanted in (
        "Ada",
        "lyon, oslo, porto (3)",
        "/data/lyon.csv",
        "heart_rate: heart rate (1/min)",
        "Why.",
        "are masked",
    ):
        assert wanted in words
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 120


def test_parameters_follow_with_the_fields():
    one = brief(study())
    assert "ties by Efron's method" not in str(one)
    assert "ties by Efron's method" in one.text(fields=True)
    assert "cox: Why. Cox proportional hazards regression." in str(one)
    assert str(one).count("Leaves in each analysis") == 1


def test_a_key_that_real_sites_need_is_stated_by_brief_and_simulation():
    validated = {"name": "cox", "method": "fed-cox", "validation": {"person_key": "identifier"}}
    one = study(analysis=[validated])
    assert "Needs:" in str(brief(one))
    assert "a pseudonym key that the sites share" in brief(one).needs
    assert [each for each in refused_at_new_sites(one) if each.startswith("pseudonym_key: ")]
    assert brief(study()).needs == ""
    by_site = study(
        analysis=[{"name": "cox", "method": "fed-cox", "validation": {"strategy": "random", "allow_leakage": True}}]
    )
    assert not needs_pseudonym_key(by_site)


def test_differences_from_the_last_approved_study_are_listed():
    before = study(privacy={"secure_sum": False}, analysis=[{"name": "table1", "method": "describe"}])
    new = brief(study(), previous=before).new
    assert "methods added: fed-cox." in new
    assert "sums leave masked, before unmasked." in new
    assert brief(study(), previous=study()).new == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"by_site": ["sex"]},
        {"subgroups": ["sex"]},
        {"where": "age >= 65"},
        {"parameters": {"ties": "breslow"}},
        {"question": "Another question"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_no_change_of_the_terms_is_called_nothing(changes):
    analyses = [{"name": "table1", "method": "describe"}, {"name": "cox", "method": "fed-cox", "question": "Why"}]
    changed = study(analysis=[analyses[0], {**analyses[1], **changes}])
    (sentence,) = brief(changed, previous=study()).new
    assert sentence.startswith(f"analyses.cox.{next(iter(changes))}")


def test_a_letter_has_one_meaning_on_a_card():
    letters = study_card(study()).used_letters
    assert len({one.letter for one in letters}) == len(letters)


def test_selections_and_estimates_of_the_site_alone_are_stated():
    content = study().model_dump()["data"] | {"where": "age >= 18", "complete": "all"}
    data = {key: value for key, value in content.items() if value not in (None, False, {})}
    analysis = {
        "name": "cox",
        "method": "fed-cox",
        "where": "age >= 65",
        "subgroups": ["sex"],
        "by_site": ["heart_rate"],
    }
    text = " ".join(str(brief(study(data=data, analysis=[analysis]))).split())
    assert "where age >= 18, without missing values" in text
    assert "Records where age >= 65. Repeated by level of sex." in text
    assert "A model of THIS SITE ALONE is fitted too." in text
    assert "can compute all coefficients at this site; the report shows those of heart_rate." in text
