import json

import numpy as np
import pytest
from hypothesis import given

from multicentre.data import MultiViewData, MultiViewSchema, agree_schemas
from multicentre.errors import DataError, SchemaMismatch
from support.strategies import multi_views


def schema(**views):
    """Build a schema from view=columns; a column that ends in "?" is boolean."""
    columns = {view: tuple(name.rstrip("?") for name in names.split()) for view, names in views.items()}
    kinds = {
        view: tuple("boolean" if name.endswith("?") else "number" for name in names.split())
        for view, names in views.items()
    }
    return MultiViewSchema(tuple(views), columns, kinds)


@given(multi_views())
def test_round_trip_through_json(views):
    original = MultiViewData(views).schema
    assert MultiViewSchema.from_dict(json.loads(json.dumps(original.to_dict()))) == original


@given(multi_views(max_views=4))
def test_sites_with_parts_of_the_views_agree_on_the_whole(views):
    whole = MultiViewData(views).schema
    sites = {f"site {k}": MultiViewData({view: values}).schema for k, (view, values) in enumerate(views.items())}
    assert agree_schemas(sites) == whole
    assert agree_schemas({"first": whole, **sites}) == whole
    assert whole.n_features == sum(values.shape[1] for values in views.values())


def test_views_stand_in_order_of_first_appearance():
    agreed = agree_schemas({"lyon": schema(b="x"), "oslo": schema(a="y", b="x"), "rome": schema(c="z", a="y")})
    assert agreed.views == ("b", "a", "c")


@pytest.mark.parametrize(
    ("odd", "difference"),
    [
        ("x z", "column 'y' is missing, expected as column 2"),
        ("x w z", "column 'y' is missing, expected as column 2, 'w' is not expected"),
        ("x y z w", "column 'w' is not expected, expected are 3 columns"),
        ("w x y z", "column 'w' is not expected, expected are 3 columns"),
        ("x z y", "column 'y' is at a different position, expected as column 2"),
        ("x y? z", "column 'y' is of kind boolean, expected number"),
    ],
)
def test_the_odd_site_and_its_first_difference_are_named(odd, difference):
    sites = {"lyon": schema(blood=odd), "oslo": schema(blood="x y z"), "rome": schema(blood="x y z", gene="g")}
    with pytest.raises(SchemaMismatch) as caught:
        agree_schemas(sites)
    assert caught.value.where == "site lyon, view 'blood'"
    assert caught.value.what == f"columns must be those of 2 of 3 sites; these differ (lyon: {difference})"
    assert "same order" in caught.value.hint


def test_among_equally_frequent_versions_the_first_counts():
    with pytest.raises(
        SchemaMismatch, match=r"these differ \(oslo: column 'x' is missing, expected as column 1, 'y' is not expected\)"
    ):
        agree_schemas({"lyon": schema(v="x"), "oslo": schema(v="y")})


def test_a_long_list_of_differing_sites_is_cut():
    sites = {f"s{j}": schema(v=f"x{j}") for j in range(9)}
    with pytest.raises(SchemaMismatch, match="and 3 more sites"):
        agree_schemas(sites)


def test_no_site_is_refused():
    with pytest.raises(DataError, match="there must be at least one schema"):
        agree_schemas({})


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"views": "v", "columns": {"v": ["x"]}, "kinds": {"v": ["number"]}},
        {"views": ["v"], "columns": ["x"], "kinds": {"v": ["number"]}},
        {"views": ["v"], "columns": {"v": [1]}, "kinds": {"v": ["number"]}},
        {"views": ["v", "w"], "columns": {"v": ["x"]}, "kinds": {"v": ["number"]}},
        {"views": ["v", "v"], "columns": {"v": ["x"]}, "kinds": {"v": ["number"]}},
        {"views": ["v"], "columns": {"v": ["x", "x"]}, "kinds": {"v": ["number", "number"]}},
        {"views": ["v"], "columns": {"v": ["x"]}, "kinds": {"v": ["number", "number"]}},
        {"views": ["v"], "columns": {"v": []}, "kinds": {"v": []}},
        {"views": ["v"], "columns": {"v": ["x"]}, "kinds": {"v": ["text"]}},
    ],
)
def test_content_that_is_no_schema_is_refused(content):
    with pytest.raises(DataError, match="schema"):
        MultiViewSchema.from_dict(content)


def test_a_hundred_sites_agree():
    one = MultiViewData({"v": np.eye(3)}).schema
    assert agree_schemas({f"s{j}": one for j in range(100)}) == one
