"""What every fitted method shows: a table, a sentence, a picture and a printed form."""

import numpy as np
import pytest

from support.method_cases import CASES, each_of
from support.toy_method import federate

pytestmark = [
    # The toy and the choice of a covariate are no estimators of the package.
    each_of(name for name in CASES if name not in ("toy-mean", "suggest-stratifier")),
    pytest.mark.filterwarnings("ignore:.*site's lists:multicentre.errors.DisclosureWarning"),
    pytest.mark.filterwarnings("ignore:DPFactAsPublished minimises:UserWarning"),
]


def test_a_fitted_model_has_tables_a_sentence_and_a_picture(name):
    import matplotlib.figure

    case = CASES[name]
    with federate(case.sites(), policy=case.policy, secure_sum=False) as federation:
        fitted = case.make().fit(federation)
    assert len(fitted.summary())
    assert len(fitted.to_frame())
    tables = fitted.result_tables()
    assert tables
    assert all(len(table) for table in tables.values())
    assert all(label == label.strip("/.") and "/" not in label for label in tables)
    answer = fitted.answer()
    assert answer.endswith(".")
    assert any(letter.isdigit() for letter in answer)
    axes = matplotlib.figure.Figure().subplots()
    assert fitted.plot(axes) is axes
    drawn = [*axes.lines, *axes.patches, *axes.collections, *axes.containers]
    assert drawn
    assert axes.get_title()
    assert repr(fitted.summary()).split("\n")[0] in str(fitted)
    assert not np.isnan(axes.get_xlim()).any()
