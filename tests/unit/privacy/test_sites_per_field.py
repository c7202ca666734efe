"""Sites behind each view and column of a masked sum: who has a field, and whether enough sites do."""

import json
from types import SimpleNamespace

import pytest

from multicentre.errors import MessageError
from multicentre.privacy.sites_per_field import (
    Field,
    SiteFields,
    SitesBehind,
    find_lone_fields,
    sites_behind,
    sites_of_fields,
)

BLOOD, SCAN = Field("blood"), Field("scan")
CRP = Field("blood", "crp")

BY_SITE = {
    "bern": SiteFields(("blood", "scan"), {"blood": ("crp",)}),
    "lyon": SiteFields(("blood",)),
    "oslo": SiteFields(("scan", "blood")),
    "roma": SiteFields(("scan",), {"scan": ("volume",)}),
}


def test_fields_that_every_site_has_are_not_listed():
    both = SiteFields(("blood", "scan"), {"blood": ()})
    assert sites_of_fields({"bern": both, "lyon": both}) == {}
    assert sites_of_fields({"bern": SiteFields(), "lyon": SiteFields()}) == {}
    assert sites_of_fields({}) == {}


def test_the_sites_with_each_view_and_column_are_listed():
    """A column is lacking where its view is, and where too few patients have an entry."""
    assert sites_of_fields(BY_SITE) == {
        BLOOD: ("bern", "lyon", "oslo"),
        SCAN: ("bern", "oslo", "roma"),
        CRP: ("lyon", "oslo"),
        Field("scan", "volume"): ("bern", "oslo"),
    }


def test_columns_of_a_table_have_no_view():
    tables = {"bern": SiteFields(sparse={"": ("age", "crp")}), "lyon": SiteFields(sparse={"": ("crp",)})}
    assert sites_of_fields(tables) == {Field("", "age"): ("lyon",), Field("", "crp"): ()}


@pytest.mark.parametrize(("threshold", "n_lost"), [(4, 0), (5, 0), (3, 1), (2, 2), (1, 3)])
def test_sites_that_may_be_lost_do_not_count(threshold, n_lost):
    """At least one site of a field contributes: without any, the sum of the field is 0."""
    assert sites_behind(BY_SITE, ("bern", "lyon", "oslo", "roma"), threshold) == {
        place: SitesBehind(max(len(sites) - n_lost, 1), sites) for place, sites in sites_of_fields(BY_SITE).items()
    }


def test_only_the_sites_of_the_call_count():
    assert sites_behind(BY_SITE, ("lyon", "roma"), 2) == {
        BLOOD: SitesBehind(1, ("lyon",)),
        SCAN: SitesBehind(1, ("roma",)),
    }
    assert sites_behind(BY_SITE, ("lyon", "roma", "roma"), 2)[SCAN] == SitesBehind(1, ("roma",))


def test_a_field_that_no_site_has_is_left_out():
    sparse = SiteFields(("blood",), {"blood": ("crp",)})
    assert sites_behind({"bern": sparse, "lyon": sparse, "oslo": SiteFields()}, ("bern", "lyon"), 2) == {}


# Refusals


def test_enough_sites_behind_every_field_are_no_reason_to_refuse():
    assert (
        find_lone_fields({BLOOD: SitesBehind(3, ("bern", "lyon", "oslo")), SCAN: SitesBehind(2, ("a", "b"))}, 2) is None
    )
    assert find_lone_fields({}, 2) is None


def test_every_field_of_too_few_sites_is_named():
    refusal = find_lone_fields({BLOOD: SitesBehind(2, ("bern", "lyon")), CRP: SitesBehind(1, ("bern",))}, 3)
    assert refusal.term == "min_sites_in_sum"
    assert refusal.reason == (
        "at least 3 sites must have each view and column of a masked sum; "
        "got 2 for view 'blood' (at bern, lyon), 1 for view 'blood', column 'crp' (at bern)"
    )
    assert refusal.hint.startswith("Leave the view or column out at every site, or add sites that have it.")
    assert refusal.hint.endswith("or leave the site out.")


@pytest.mark.parametrize(("n_fields", "more"), [(5, ""), (6, " and 1 more"), (9, " and 4 more")])
def test_a_long_list_of_fields_is_cut_off(n_fields, more):
    behind = {Field("", f"x{number}"): SitesBehind(1, ("bern",)) for number in range(n_fields)}
    reason = find_lone_fields(behind, 2).reason
    assert reason.count("column") - 1 == 5  # once in the sentence
    assert reason.endswith(f"1 for column 'x4' (at bern){more}")


@pytest.mark.parametrize(
    ("place", "text"),
    [(BLOOD, "view 'blood'"), (CRP, "view 'blood', column 'crp'"), (Field("", "age"), "column 'age'"), (Field(""), "")],
)
def test_a_field_is_named_by_view_and_column(place, text):
    assert str(place) == text


# Fields of a site


@pytest.mark.parametrize(
    ("fields", "place", "adds"),
    [
        (SiteFields(("blood",)), BLOOD, True),
        (SiteFields(("blood",)), SCAN, False),
        (SiteFields(("blood",)), Field("", "age"), False),  # a column of a table
        (SiteFields(), Field("", "age"), True),
        (SiteFields(empty={"": ("age",)}), Field("", "age"), False),
        (SiteFields(("blood",), empty={"blood": ("crp",)}), CRP, False),
        (SiteFields(("blood",), empty={"scan": ("crp",)}), CRP, True),
        (SiteFields(("blood",), {"blood": ("crp",)}), CRP, True),  # few entries are more than zeros
    ],
)
def test_a_site_adds_to_the_fields_of_which_it_has_an_entry(fields, place, adds):
    assert fields.adds_to(place) is adds


def test_the_fields_of_data_are_counted_with_the_minimum_and_with_one_entry():
    data = SimpleNamespace(views=["blood"], columns_below=lambda least: {"blood": (f"below {least}",)})
    fields = SiteFields.of(data, 5)
    assert (fields.views, fields.sparse, fields.empty) == (
        ("blood",),
        {"blood": ("below 5",)},
        {"blood": ("below 1",)},
    )
    assert SiteFields.of(data, 0).sparse == {"blood": ("below 1",)}
    assert SiteFields.of(SimpleNamespace(), 5) == SiteFields()
    assert SiteFields.of(SimpleNamespace(views=("blood",)), 5) == SiteFields(("blood",))


# Texts


def test_the_signed_text_lists_views_and_sparse_columns_only():
    """Names may have letters of any language; they are written as they are."""
    fields = SiteFields(("Zürich",), {"Zürich": ("größe", "alter")}, {"Zürich": ("leer",)})
    assert fields.to_text() == '{"views": ["Zürich"], "sparse": {"Zürich": ["größe", "alter"]}}'
    again = SiteFields.from_text(fields.to_text(), "zürich")
    assert (again.views, again.sparse, again.empty) == (("Zürich",), {"Zürich": ("größe", "alter")}, {})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"views": []}',
        '{"sparse": {}}',
        '{"views": "blood", "sparse": {}}',
        '{"views": [1], "sparse": {}}',
        '{"views": [], "sparse": []}',
        '{"views": [], "sparse": {"blood": "crp"}}',
        '{"views": [], "sparse": {"blood": [null]}}',
        "[" * 100_000,
    ],
)
def test_a_text_of_another_form_is_refused(text):
    with pytest.raises(MessageError) as caught:
        SiteFields.from_text(text, "lyon")
    assert caught.value.where == "lyon"
    assert (
        caught.value.what
        == "the list of the site's fields must be JSON with views and sparse columns; it cannot be read"
    )


def test_a_text_has_at_most_sixteen_million_letters():
    text = json.dumps({"views": [], "sparse": {}})
    assert SiteFields.from_text(text.ljust(2**24), "lyon") == SiteFields()
    with pytest.raises(MessageError):
        SiteFields.from_text(text.ljust(2**24 + 1), "lyon")
