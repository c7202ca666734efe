"""A coordinator that makes models, bins or asks up learns of no few patients from scoring."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.boosting import FedXGBClassifier, FedXGBRegressor
from multicentre.core.messages import Nothing
from multicentre.core.wire import encode
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError
from multicentre.statistics.line import MAX_LINES
from multicentre.validation.scoring import numbers as of_numbers
from multicentre.validation.scoring.classes import maths
from multicentre.validation.scoring.classes import site as of_classes
from multicentre.validation.scoring.classes.curves import join_small
from multicentre.validation.scoring.classes.profiles import LinesRequest, ProfileRequest, Subgroups
from multicentre.validation.scoring.events import EventPart
from multicentre.validation.scoring.judging import FIXED, MAX_FIXED, Scored, ScoreNames, judge
from multicentre.validation.scoring.tables import TableClassPart, TableNumberPart, table_model
from multicentre.validation.scoring.views import RowLaw, RowPart
from multicentre_papers.baselines.adaboost_f.scoring import VotedTrees
from support.event_sites import simulate_events

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
    return table_model(kind(2, max_depth=2, max_bins=8).fit(federation))


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
    return Scored(kind, np.frombuffer(encode(message), dtype=np.uint8))


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
    with pytest.raises(ConfigurationError, match="must score one model"):
        part.judge(judged(singling_out(message)))


def test_nothing_is_told_without_a_model():
    part = TableClassPart("lyon", table())
    for request in (part.count_right, part.sum_losses, part.count_confusion, part.locate_scores):
        with pytest.raises(ConfigurationError, match=r"the model must be sent \(step judge\) before any other step"):
            request(Nothing())


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
    with pytest.raises(ConfigurationError, match="must be identical"):
        part.count_scores(of_classes.Edges(np.array([[-1.0, 0.01, 1.0]])))


@pytest.mark.parametrize(
    "edges", [[[1.0, 0.0]], [[0.0, 0.0]], [[0.0], [1.0]], [[]], [list(range(5000))]], ids=lambda one: str(one)[:20]
)
def test_bins_that_do_not_rise_or_fit_are_refused(edges):
    data = table()
    part = part_of(data, model_of(data))
    with pytest.raises(MessageError, match="edges must have 1 rows of 1 to 4095 increasing numbers"):
        part.count_scores(of_classes.Edges(np.array(edges, dtype=float)))


def test_unmasked_bins_of_few_records_are_said_to_rest_on_so_few():
    data = table()
    part = part_of(data, model_of(data))
    located = part.locate_scores(Nothing())
    ranked = part.count_scores(of_classes.Edges(maths.even_edges(located.counts.astype(float))))
    for answer in (located, ranked):
        counts = answer.counts
        assert counts.sum() == len(data)
        assert answer.patients == counts[counts > 0].min() < LEAST


SUMS = ("count_right", "count_confusion", "sum_losses")
OWN = ("accuracy", "f1", "neg_log_loss", "neg_brier_score", "roc_auc", "average_precision")


def assert_tells_nothing(part):
    """Assert that whatever is summed rests on too few patients, and that no score of the site's own is told."""
    assert max(getattr(part, name)(Nothing()).patients for name in SUMS) < LEAST
    assert not part.score_own(ScoreNames(OWN)).reliable.any()


def test_unmasked_a_model_of_a_column_in_which_one_patient_differs_tells_nothing():
    data = table(rare=True)
    message = singling_out(model_of(table()))
    assert_tells_nothing(part_of(data, message))
    masked = part_of(data, message, masked=True)
    assert len(np.unique(masked.chances[:, 1])) == 2
    assert masked.count_right(Nothing()).patients == len(data)


def test_unmasked_a_model_that_is_sure_of_nearly_everyone_tells_nothing_of_the_others():
    data = table(400)
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(400, 2)), data.y.astype(float)])
    X[:3, 2] = 1 - X[:3, 2]
    part = part_of(mc.data.TableData(X, data.y), singling_out(model_of(table())))
    assert_tells_nothing(part)
    assert part.count_right(Nothing()).patients == 3


def test_a_score_of_few_leaves_no_site_unmasked():
    data = table(400)
    federation = federate(data, secure_sum=False)
    message = model_of(data)
    opened = judge(federation, TableClassPart, message, "BoostedTrees", lambda handle: handle)
    right = int((np.argmax(message.chances(data), axis=1) == data.y).sum())
    assert min(right, 400 - right) >= LEAST
    assert opened.sum(TableClassPart.count_right, Nothing()).counts[0] == 2 * right
    few = federate(data.take(np.arange(30)), secure_sum=False)
    opened = judge(few, TableClassPart, message, "BoostedTrees", lambda handle: handle)
    with pytest.raises(DisclosureRefused):
        opened.sum(TableClassPart.count_right, Nothing())


def test_another_unit_or_centre_of_the_same_numbers_is_refused():
    data = table(outcome="number")
    part = part_of(data, model_of(data))
    part.sum_numbers(of_numbers.InUnits(0))
    part.sum_errors(of_numbers.About(0, 0.5))
    with pytest.raises(ConfigurationError, match="must be identical"):
        part.sum_numbers(of_numbers.InUnits(1))
    with pytest.raises(ConfigurationError, match="must be identical"):
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
        assert alone - {"name_subgroups", "evaluate_alone"} == {"judge", "score_own"}


def no_subgroups():
    return {"column": "", "cuts": np.zeros(0), "chosen": np.zeros(0, dtype=np.int64)}


def test_a_site_answers_few_intercepts_and_slopes():
    data = table()
    part = part_of(data, model_of(data), masked=True)
    for place in range(MAX_LINES):
        part.sum_lines(LinesRequest(**no_subgroups(), lines=np.full((2, 1, 2), place / 8)))
    part.sum_lines(LinesRequest(**no_subgroups(), lines=np.zeros((2, 1, 2))))  # the first request once more
    with pytest.raises(ConfigurationError, match="at most 25 intercepts and slopes"):
        part.sum_lines(LinesRequest(**no_subgroups(), lines=np.full((2, 1, 2), 9.0)))


def test_other_subgroups_of_the_same_records_are_refused():
    """The difference of two limits between intervals would be the records between them."""
    data = table()
    part = part_of(data, model_of(data), masked=True)
    part.count_subgroups(Subgroups("x1", np.array([0.0])))
    with pytest.raises(ConfigurationError, match="must be identical"):
        part.count_subgroups(Subgroups("x1", np.array([0.001])))
    request = {**no_subgroups(), "column": "x1", "chosen": np.array([0])}
    part.count_profile(ProfileRequest(**{**request, "cuts": np.array([0.0])}, edges=np.array([0.0])))
    with pytest.raises(ConfigurationError, match="must be identical"):
        part.count_profile(ProfileRequest(**{**request, "cuts": np.array([0.001])}, edges=np.array([0.0])))


def test_a_session_has_one_division_into_subgroups():
    """Derivatives for two limits with one record between them would differ by that record's terms."""
    data = table()
    part = part_of(data, model_of(data), masked=True)
    first, second = np.sort(data.X[:, 1])[100:102]
    one = {**no_subgroups(), "column": "x1", "chosen": np.array([0])}
    part.sum_lines(LinesRequest(**{**one, "cuts": np.array([first])}, lines=np.zeros((2, 2, 2))))
    for request in (
        LinesRequest(**{**one, "cuts": np.array([second])}, lines=np.zeros((2, 2, 2))),
        LinesRequest(**{**one, "column": "x2", "cuts": np.array([first])}, lines=np.zeros((2, 2, 2))),
    ):
        with pytest.raises(ConfigurationError, match="must be identical"):
            part.sum_lines(request)
    with pytest.raises(ConfigurationError, match="must be identical"):
        part.count_subgroups(Subgroups("x1", np.array([second])))
    with pytest.raises(ConfigurationError, match="must be identical"):
        part.count_profile(ProfileRequest(**{**one, "cuts": np.array([second])}, edges=np.array([0.0])))


@pytest.mark.parametrize(
    "change",
    [{"chosen": np.array([0, 0])}, {"chosen": np.array([5])}, {"chosen": np.array([-1])}, {"edges": np.zeros(2)}],
    ids=["twice", "unknown", "negative", "edges"],
)
def test_subgroups_and_bins_that_do_not_fit_are_refused(change):
    data = table()
    part = part_of(data, model_of(data), masked=True)
    request = {**no_subgroups(), "column": "x1", "cuts": np.array([0.0]), "edges": np.array([0.0])}
    with pytest.raises(MessageError):
        part.count_profile(ProfileRequest(**{**request, **change}))


def test_unmasked_profiles_and_lines_of_few_rest_on_so_few():
    data = table(rare=True)
    part = part_of(data, singling_out(model_of(table())))
    profile = part.count_profile(ProfileRequest(**no_subgroups(), edges=np.array([0.0])))
    derivatives = part.sum_lines(LinesRequest(**no_subgroups(), lines=np.zeros((2, 1, 2))))
    part = part_of(data, singling_out(model_of(table())))
    subgroups = part.count_subgroups(Subgroups("x2", np.array([0.5])))
    assert max(answer.patients for answer in (profile, derivatives, subgroups)) < LEAST


def test_subgroups_with_few_records_in_all_are_never_requested():
    """Every table of two groups: a group with few records of a class is withheld with the group that reveals it."""
    for small in range(LEAST):
        counts = np.array([[50.0, 30.0], [20.0, 12.0], [20.0, float(small)]])
        shown, withheld = join_small(counts, LEAST)
        assert 2 in withheld
        hidden = counts[withheld].sum(axis=0)
        assert len(shown) == 0 or hidden.min() >= LEAST


def boxed(data, inside, outside, row=0, base=0.0):
    """Return a model that says one thing of one record, found by its first column, and another of all others."""
    value, i4, f4 = np.float32(data.X[row, 0]), np.int32, np.float32
    above = np.nextafter(value, f4(np.inf))
    nodes = np.zeros(5, dtype=f4)
    kind = {"class": "binary:logistic", "number": "reg:squarederror"}[data.outcome]
    return dataclasses.replace(
        model_of(data),
        objective=kind,
        base=np.array([base], dtype=f4),
        roots=np.zeros(1, dtype=i4),
        group=np.zeros(1, dtype=i4),
        column=np.array([0, -1, 0, -1, -1], dtype=i4),
        threshold=np.array([value, 0, above, 0, 0], dtype=f4),
        default_left=np.zeros(5, dtype=np.uint8),
        value=np.array([0, outside, 0, inside, outside], dtype=f4),
        gain=nodes,
        cover=nodes,
        weight=nodes,
    )


def costs(seed=0):
    rng = np.random.default_rng(seed)
    return mc.data.TableData(rng.normal(60, 9, size=(200, 2)), rng.gamma(2, 800, 200), outcome="number")


@pytest.mark.parametrize("outside", [1e25, 1e8])
def test_unmasked_a_model_far_off_for_all_but_one_tells_no_number(outside):
    data = costs()
    part = part_of(data, boxed(data, 0.0, outside))
    assert part.sum_errors(of_numbers.About(10, 1.6)).patients < LEAST
    names = ("neg_mean_absolute_error", "neg_mean_squared_error", "r2")
    assert not part.score_own(ScoreNames(names)).reliable.any()


def test_no_term_is_cut_off_so_that_all_others_would_be_known():
    one, other = costs(), costs()
    changed = mc.data.TableData(other.X, np.where(np.arange(200) == 7, other.y + 500, other.y), outcome="number")
    told = []
    for data in (one, changed):
        part = part_of(data, boxed(one, 0.0, 1e25), masked=True)
        told.append(part.sum_errors(of_numbers.About(10, 1.6)))
    assert told[0].absolute == told[1].absolute == MAX_FIXED


@pytest.mark.parametrize(("low", "high"), [(-1e3, 2e4), (0.0, 1e4), (3e4, -10.0)])
@pytest.mark.parametrize("row", [0, 11])
def test_sums_of_one_session_that_add_up_to_one_number_are_refused_unmasked(row, low, high):
    data, unit = costs(), 2.0**10
    message, about = boxed(data, high, low, row), of_numbers.About(10, float(data.y.mean() / unit))
    part = part_of(data, message)
    whole = part.sum_numbers(of_numbers.InUnits(10)).total / FIXED * unit
    errors = part.sum_errors(about)
    absolute = errors.absolute / FIXED * unit * np.sign(high - low)
    assert (whole - (len(data) - 1) * low + high - absolute) / 2 == pytest.approx(data.y[row], abs=0.1)
    assert errors.patients < LEAST
    assert not part.score_own(ScoreNames(("neg_mean_absolute_error", "neg_mean_squared_error", "r2"))).reliable.any()


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_a_model_of_one_record_is_found_out_in_any_unit(scale):
    data = costs()
    tiny = mc.data.TableData(data.X, data.y * scale, outcome="number")
    part = part_of(tiny, boxed(tiny, 1e4 * scale, 0.0))
    exponent = part.exponent
    about = of_numbers.About(exponent, float(tiny.y.mean() / 2.0**exponent))
    assert part.sum_errors(about).patients < LEAST
    assert not part.score_own(ScoreNames(("neg_mean_absolute_error",))).reliable.any()


def test_a_unit_or_a_centre_far_from_the_sites_own_numbers_is_refused():
    data = costs()
    for exponent in (-9, 30):
        part = part_of(data, model_of(data))
        for request in (of_numbers.InUnits(exponent), of_numbers.About(exponent, 0.0)):
            with pytest.raises(MessageError, match="unit"):
                (part.sum_errors if isinstance(request, of_numbers.About) else part.sum_numbers)(request)
    for centre in (1e9, -1e300):
        with pytest.raises(MessageError, match="mean"):
            part_of(data, model_of(data)).sum_errors(of_numbers.About(10, centre))


def test_unmasked_numbers_of_which_few_differ_are_not_summed():
    y = np.zeros(200)
    y[5] = 812.0
    data = mc.data.TableData(costs().X, y, outcome="number")
    part = part_of(data, model_of(costs()))
    assert part.find_magnitude(Nothing()).patients < LEAST
    assert part.sum_numbers(of_numbers.InUnits(5)).patients < LEAST


@pytest.mark.parametrize("inside", [2e-6, 2.0, 30.0])
@pytest.mark.parametrize("row", [0, 1, 2, 3])
def test_unmasked_a_model_the_same_for_all_but_one_tells_no_class(row, inside):
    data = table()
    assert_tells_nothing(part_of(data, boxed(data, inside, 0.0, row)))


@pytest.mark.parametrize("row", [0, 1, 2, 3])
def test_unmasked_bins_that_set_one_record_apart_are_refused(row):
    data = table()
    part = part_of(data, boxed(data, 2.0, 0.0, row))
    assert part.count_scores(of_classes.Edges(np.array([[-1.0, 1.0]]))).patients == 1
    assert part.locate_scores(Nothing()).patients == 1


def law_of(data, mean, deviation):
    columns = {"lab": ("x0", "x1")}
    made = {"loadings": np.zeros((2, 1)), "mean": np.array(mean), "noise": np.ones(2)}
    return RowLaw(("lab",), columns, np.array(deviation), **made)


def test_unmasked_a_law_with_a_narrow_window_tells_no_entry():
    X = np.random.default_rng(0).normal(50, 9, size=(120, 2))
    data = mc.data.MultiViewData({"lab": X}, columns={"lab": ["x0", "x1"]})
    guess = float(np.round(X[:, 0].max()))
    part = RowPart("lyon", data)
    part.least_behind, part.masked = LEAST, False
    part.judge(judged(law_of(data, [guess, 50.0], [2.0**-27, 1e29]), "RowLaw"))
    assert part.sum_errors(Nothing()).absolute.tolist() == [MAX_FIXED]


def test_unmasked_errors_of_which_one_record_stands_out_are_not_told():
    X = np.full((120, 2), 50.0)
    X[3] = 61.0
    data = mc.data.MultiViewData({"lab": X}, columns={"lab": ["x0", "x1"]})
    part = RowPart("lyon", data)
    part.least_behind, part.masked = LEAST, False
    part.judge(judged(law_of(data, [50.0, 50.0], [1.0, 1.0]), "RowLaw"))
    assert part.sum_errors(Nothing()).patients < LEAST
    assert part.sum_densities(Nothing()).patients < LEAST
    assert not part.score_own(ScoreNames(("neg_mean_absolute_error", "log_likelihood"))).reliable.any()


@pytest.mark.parametrize("masked", [False, True])
def test_what_no_finite_prediction_is_breaks_no_step_and_leaves_no_score_untold(masked):
    data, numbers = table(), costs()
    part = part_of(data, model_of(data), masked=masked)
    part.predict_chances = lambda: np.column_stack(
        [np.linspace(0.2, 0.8, 200), np.where(np.arange(200) == 9, np.nan, np.linspace(0.8, 0.2, 200))]
    )
    for request in (part.count_right, part.count_confusion, part.sum_losses, part.locate_scores):
        request(Nothing())
    assert part.score_own(ScoreNames(("neg_log_loss", "roc_auc"))).reliable.all()
    part = part_of(numbers, model_of(numbers), masked=masked)
    part.predict_numbers = lambda: np.where(np.arange(200) == 9, np.inf, numbers.y + np.linspace(-900, 900, 200))
    part.sum_errors(of_numbers.About(10, 1.6))


def test_a_small_message_asks_for_no_large_table():
    data = table(100)
    classes = (*data.classes, *(f"k{place}" for place in range(2000)))
    none = {name: np.array([-1], dtype=np.int32) for name in ("column", "left", "right")}
    leaf = {"roots": np.zeros(1, dtype=np.int32), "label": np.zeros(1, dtype=np.int32), "threshold": np.zeros(1)}
    votes = {"centre": np.zeros(3), "sizes": np.array([1]), "votes": np.array([1.0])}
    message = VotedTrees(**none, **leaf, **votes, columns=data.columns, classes=classes)
    dataclasses.replace(message, classes=data.classes).valid_for(data)
    with pytest.raises(MessageError, match="1000 classes"):
        message.valid_for(data)
