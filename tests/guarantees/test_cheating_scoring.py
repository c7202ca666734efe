"""A coordinator that makes models, bins or asks up learns of no few patients from scoring."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from event_sites import simulate_events
from multicentre.boosting import FedXGBClassifier, FedXGBRegressor
from multicentre.federation.errors import ConfigurationError, DisclosureRefused, MessageError
from multicentre.federation.messages import Nothing
from multicentre.federation.wire import encode
from multicentre.validation.scoring.classes import maths
from multicentre.validation.scoring.classes import messages as of_classes
from multicentre.validation.scoring.events.site import EventPart
from multicentre.validation.scoring.judging import Judged, Wanted, begin_judging
from multicentre.validation.scoring.numbers import messages as of_numbers
from multicentre.validation.scoring.tables import TableClassPart, TableNumberPart, table_model
from multicentre.validation.scoring.views.site import RowPart

LEAST = 10


def table(n=200, rare=False, outcome="class"):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    if rare:
        X[:, 2] = np.arange(n) == 17
    y = (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(float)
    return mc.data.TableData(X, y, outcome=outcome)


def federate(data, **options):
    return mc.Federation.in_process({"lyon": data, "oslo": data}, **options)


def model_of(data):
    kind = FedXGBClassifier if data.outcome == "class" else FedXGBRegressor
    federation = federate(data, policy=mc.Policy(min_patients=0))
    return table_model(kind(2, max_depth=2, max_bin=8).fit(federation))


def singling_out(message):
    """Return a model that gives one value of the third column a chance of its own."""
    i4, f4 = np.int32, np.float32
    stump = {
        "roots": np.zeros(1, dtype=i4),
        "group": np.zeros(1, dtype=i4),
        "column": np.array([2, -1, -1], dtype=i4),
        "threshold": np.array([0.5, 0, 0], dtype=f4),
        "default_left": np.zeros(3, dtype=np.uint8),
        **{name: np.array([0, -9, 9], dtype=f4) for name in ("value", "gain", "cover", "weight")},
    }
    return dataclasses.replace(message, **stump)


def judged(message, kind="BoostedTrees"):
    return Judged(kind, np.frombuffer(encode(message), dtype=np.uint8))


def part_of(data, message, *, masked=False):
    part = (TableClassPart if data.outcome == "class" else TableNumberPart)("lyon", data)
    part.least_behind, part.masked = LEAST, masked
    part.judge(judged(message))
    return part


def test_a_site_judges_one_model_a_session():
    data = table()
    message = model_of(data)
    part = part_of(data, message)
    part.judge(judged(message))
    with pytest.raises(ConfigurationError, match="another model"):
        part.judge(judged(singling_out(message)))


def test_nothing_is_told_without_a_model():
    part = TableClassPart("lyon", table())
    for ask in (part.count_right, part.sum_losses, part.count_confusion, part.locate_scores):
        with pytest.raises(ConfigurationError, match="no model"):
            ask(Nothing())


@pytest.mark.parametrize("how", ["kind", "bytes", "truncated", "another message"])
def test_what_is_no_model_of_a_known_kind_is_refused(how):
    data = table()
    good = judged(model_of(data))
    broken = {
        "kind": dataclasses.replace(good, kind="Anything"),
        "bytes": dataclasses.replace(good, packed=np.arange(40, dtype=np.uint8)),
        "truncated": dataclasses.replace(good, packed=good.packed[:-8]),
        "another message": judged(Nothing()),
    }[how]
    part = TableClassPart("lyon", data)
    with pytest.raises(MessageError):
        part.judge(broken)
    assert part.state is None


def test_other_bins_of_the_same_records_are_refused():
    data = table()
    part = part_of(data, model_of(data))
    part.count_scores(of_classes.Edges(np.array([[-1.0, 0.0, 1.0]])))
    with pytest.raises(ConfigurationError, match="another ask"):
        part.count_scores(of_classes.Edges(np.array([[-1.0, 0.01, 1.0]])))


@pytest.mark.parametrize(
    "edges", [[[1.0, 0.0]], [[0.0, 0.0]], [[0.0], [1.0]], [[]], [list(range(5000))]], ids=lambda one: str(one)[:20]
)
def test_bins_that_do_not_rise_or_fit_are_refused(edges):
    data = table()
    part = part_of(data, model_of(data))
    with pytest.raises(MessageError, match="bins of scores"):
        part.count_scores(of_classes.Edges(np.array(edges, dtype=float)))


def test_in_clear_no_bin_shows_few_records():
    data = table()
    part = part_of(data, model_of(data))
    located = part.locate_scores(Nothing())
    ranked = part.count_scores(of_classes.Edges(maths.even_edges(located.counts.astype(float))))
    for counts in (located.counts, ranked.low, ranked.high):
        assert counts.any()
        assert ((counts == 0) | (counts >= LEAST)).all()


def test_in_clear_a_column_in_which_one_patient_differs_tells_nothing():
    data = table(rare=True)
    message = singling_out(model_of(table()))
    part = part_of(data, message)
    assert len(np.unique(part.chances[:, 1])) == 1
    masked = part_of(data, message, masked=True)
    assert len(np.unique(masked.chances[:, 1])) == 2
    masked.masked = False
    assert len(np.unique(masked.chances[:, 1])) == 1


def test_in_clear_a_sum_of_losses_of_a_model_that_is_sure_of_nearly_everyone_is_refused():
    data = table(400)
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(400, 2)), data.y.astype(float)])
    X[:3, 2] = 1 - X[:3, 2]
    sure = mc.data.TableData(X, data.y)
    part = part_of(sure, singling_out(model_of(table())))
    assert part.sum_losses(Nothing()).patients < LEAST
    assert part.count_right(Nothing()).patients == 3
    told = part.score_own(Wanted(("accuracy", "neg_log_loss", "roc_auc")))
    assert told.told.tolist() == [False, False, True]
    assert told.values[:2].tolist() == [0.0, 0.0]


def test_a_score_of_few_leaves_no_site_in_clear():
    data = table(400)
    federation = federate(data)
    message = model_of(data)
    opened = begin_judging(federation, TableClassPart, message, "BoostedTrees")
    right = int((np.argmax(message.chances(data.X), axis=1) == data.y).sum())
    assert min(right, 400 - right) >= LEAST
    assert opened.sum(TableClassPart.count_right, Nothing()).counts[0] == 2 * right
    few = federate(data.take(np.arange(30)))
    opened = begin_judging(few, TableClassPart, message, "BoostedTrees")
    with pytest.raises(DisclosureRefused):
        opened.sum(TableClassPart.count_right, Nothing())


def test_another_unit_or_centre_of_the_same_numbers_is_refused():
    data = table(outcome="number")
    part = part_of(data, model_of(data))
    part.sum_numbers(of_numbers.InUnits(0))
    part.sum_errors(of_numbers.About(0, 0.5))
    with pytest.raises(ConfigurationError, match="another ask"):
        part.sum_numbers(of_numbers.InUnits(1))
    with pytest.raises(ConfigurationError, match="another ask"):
        part.sum_errors(of_numbers.About(0, 0.25))
    with pytest.raises(MessageError, match="unit"):
        part_of(data, model_of(data)).sum_numbers(of_numbers.InUnits(900))


def test_models_of_other_data_are_refused():
    message = model_of(table())
    for part in (RowPart("lyon", mc.data.MultiViewData({"a": np.zeros((9, 2))})),
                 EventPart("lyon", next(iter(simulate_events().sites(3).values())))):  # fmt: skip
        with pytest.raises(MessageError, match="kind"):
            part.judge(judged(message))


def test_every_step_of_scoring_is_summed_but_the_own_scores_and_the_model():
    for part in (TableClassPart, TableNumberPart, RowPart, EventPart):
        alone = {name for name, step in part.steps().items() if not step.summed}
        assert alone == {"judge", "score_own"}
