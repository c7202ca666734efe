"""Tables of results are printed with the effect first, fixed decimals and lines of at most 80 letters."""

import re

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.errors import IntegrityError
from multicentre.estimator.printing import frame_as_latex, table_text
from multicentre.estimator.saved import PLAIN, check_types, unpack_attributes


def effects(name):
    values = {"coefficient": [0.2], "standard_error": [0.1], "lower": [0.0], "upper": [0.4], "odds_ratio": [1.2214]}
    values |= {"odds_ratio_lower": [1.0], "odds_ratio_upper": [1.4918], "p_value": [2e-23]}
    return pd.DataFrame(values, index=[name])


def test_effect_limits_and_p_value_come_first_on_one_line():
    head, line = table_text(effects("age")).splitlines()
    assert head.split()[:4] == ["odds_ratio", "lower", "upper", "p_value"]
    assert line.split()[:5] == ["age", "1.221", "1.000", "1.492", "<0.001"]


def test_long_names_keep_lines_within_80_letters():
    lines = table_text(effects("diagnosis_at_admission_to_the_intensive_care_unit" * 2 + "=sepsis")).splitlines()
    assert max(map(len, lines)) <= 80
    assert "=sepsis" in lines[1]
    assert "<0.001" in lines[1]


def test_a_tiny_entry_does_not_bring_powers_of_ten():
    frame = pd.DataFrame({"value": [0.73734, -1e-10], "lower": [0.7, -0.1], "upper": [0.77, 0.1]}, index=["auc", "a"])
    assert table_text(frame).splitlines()[1:] == ["auc  0.737   0.700  0.770", "a    0.000  -0.100  0.100"]


def test_a_narrow_interval_gets_the_decimals_it_needs():
    frame = pd.DataFrame({"hazard_ratio": [1.0003], "lower": [1.00011], "upper": [1.00049], "p_value": [0.012]})
    assert table_text(frame).splitlines()[1].split()[1:] == ["1.00030", "1.00011", "1.00049", "0.012"]


def test_latex_escapes_names_and_bounds_p_values():
    text = frame_as_latex(effects("mean_pressure_%"))
    assert not re.search(r"(?<!\\)[_%#]", text)
    assert "$<$0.001" in text
    assert "1.221" in text


@pytest.mark.parametrize("forged", [None, True, "x", [], {}, [[1]]])
def test_a_fact_of_another_type_is_refused_at_load(forged):
    model = mc.regression.FedLogisticRegression()
    unpack_attributes(model, {"n_patients_": PLAIN}, {}, {"n_patients_": forged})
    with pytest.raises(IntegrityError, match="type of a fitted model"):
        check_types(model)
    unpack_attributes(model, {"n_patients_": PLAIN}, {"n_patients_": np.int64(120)}, {})
    check_types(model)
