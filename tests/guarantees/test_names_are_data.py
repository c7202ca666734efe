"""Names of columns, levels and classes are data: a delimiter in them loses no column and opens no other one."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.data.categories import families, join_level, split_level
from multicentre.errors import DataError

ODD = ("GCS<=8", "SpO2=room air", "a\\=b", "=", "x==y", "back\\slash", "a=b=c")
N = 90


def sites(columns, **options):
    rng = np.random.default_rng(0)
    made = {}
    for site in "xyz":
        X = np.column_stack([rng.integers(0, 2, (N, len(columns) - 1)), rng.normal(size=N)]).astype(float)
        made[site] = mc.data.TableData(X, np.arange(N) % 2, columns=columns, classes=["a", "b=c"], **options)
    return made


@pytest.mark.parametrize("variable", ODD)
@pytest.mark.parametrize("level", ["0", "", "a=b", "\\", "=\\="])
def test_a_level_is_split_as_it_was_joined(variable, level):
    assert split_level(join_level(variable, level)) == (variable, level)


def test_levels_of_two_variables_are_never_one_name():
    names = {join_level(variable, level) for variable in ("a", "a=b", "a\\") for level in ("c", "b=c", "=c")}
    assert len(names) == 9
    assert set(families(sorted(names))) == {"a", "a=b", "a\\"}


@pytest.mark.parametrize("odd", ODD)
def test_a_table_has_all_columns_whatever_their_names(odd):
    columns = [odd, "age"]
    for by, categorical in ((None, ()), (None, [odd]), (odd, [odd]), ("outcome", [odd])):
        model = mc.analytics.Describe(by, categorical=categorical, quartiles=False)
        model.fit(mc.Federation.in_process(sites(columns)))
        variables = set(model.groups_.numbers) | set(families(model.groups_.levels))
        assert {*columns, "outcome"} - {by} == variables
        assert len(model.to_frame())


def test_a_policy_on_a_column_opens_no_column_whose_name_begins_like_it():
    data = sites(["SpO2", "SpO2=room air", "age"])["x"]
    assert data.keep_columns(["SpO2", "age"]).columns == ("SpO2", "age")
    with pytest.raises(DataError, match="at least one column must remain"):
        sites(["SpO2=room air", "age"])["x"].keep_columns(["SpO2"])


def test_a_regression_names_odd_columns_as_they_are():
    columns = ["GCS<=8", "SpO2=room air", "age"]
    model = mc.regression.FedLogisticRegression().fit(mc.Federation.in_process(sites(columns)))
    assert set(columns) <= set(model.to_frame().index)
