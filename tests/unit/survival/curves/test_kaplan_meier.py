"""Survival curves over sites: options, bad input, what leaves, and what is shown."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.session import Session
from multicentre.data.missing.values import GAP_STEPS
from multicentre.errors import ConfigurationError, DataError
from multicentre.estimator.figures import Curves, Table, read_figure
from multicentre.reports.alt_texts import describe
from multicentre.reports.figures import draw
from multicentre.survival import KaplanMeier
from multicentre.survival.curves.kaplan_meier import maths

OPEN = mc.Policy(min_patients=0, exact_times=True)


def simulated(n=150, **options):
    return {f"site-{i}": mc.datasets.simulate_survival(n + 40 * i, random_state=i, **options) for i in range(3)}


def one_column(time, event, group=None):
    group = np.zeros(len(time)) if group is None else group
    return mc.data.SurvivalData(np.asarray(group, float)[:, None], time, event, columns=["arm"])


def fit(sites, *arguments, policy=None, secure_sum=True, **options):
    return KaplanMeier(*arguments, **options).fit(mc.Federation.in_process(sites, policy=policy, secure_sum=secure_sum))


def test_intervals_by_scale():
    survival, variance = np.array([1.0, 0.8, 0.0]), np.array([0.0, 0.05, 0.05])
    reach = 1.959964 * np.sqrt(0.05)
    turn = np.exp(reach / -np.log(0.8))
    limits = {
        "plain": (0.8 - reach * 0.8, 1.0),
        "log": (0.8 * np.exp(-reach), 1.0),
        "log-log": (0.8**turn, 0.8 ** (1 / turn)),
    }
    for scale, (lower, upper) in limits.items():
        found = maths.interval(survival, variance, 0.95, scale)
        assert [limit[0] for limit in found] == [1.0, 1.0]
        assert [limit[2] for limit in found] == [0.0, 0.0]
        assert found[0][1] == pytest.approx(lower, rel=1e-6)
        assert found[1][1] == pytest.approx(upper, rel=1e-6)


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("horizon", [0.5, 1.0, 2.2, 4.0, 6.0])
def test_the_area_is_that_of_a_fine_sum(steps, horizon):
    grid, curve = np.array([1.0, 2.5, 4.0]), np.array([0.9, 0.6, 0.3])
    fine = (np.arange(200_000) + 0.5) / 200_000 * horizon
    if steps:
        values = np.concatenate([[1.0], curve])[np.searchsorted(grid, fine, side="right")]
    else:
        values = np.interp(fine, [0.0, *grid], [1.0, *curve])
    start, weights = maths.area_weights(grid, horizon, steps=steps)
    assert start + weights @ curve == pytest.approx(values.mean() * horizon, abs=1e-4)


def test_a_median_that_was_not_reached_is_nan():
    model = fit({"a": one_column(np.arange(1.0, 31.0), np.arange(30) % 5 == 0)}, times="exact", policy=OPEN)
    assert np.isnan(model.median_["all"].value)
    assert np.isnan(model.median_["all"].upper)
    assert model.follow_up_["all"].value == pytest.approx(16.0, abs=5.0)
    assert "not reached" in model.figures({}, {})[1].rows[0][3]


def test_differences_of_restricted_means():
    model = fit(simulated(), "x2")
    one, other = model.restricted_mean(20.0)["0"], model.restricted_mean(20.0)["1"]
    difference = model.rmst_difference("0", "1", 20.0)
    assert difference.value == pytest.approx(one.value - other.value)
    assert difference.standard_error == pytest.approx(np.hypot(one.standard_error, other.standard_error))
    assert difference.upper - difference.lower == pytest.approx(2 * 1.959964 * difference.standard_error, rel=1e-5)
    with pytest.raises(ConfigurationError, match="the group must be one of"):
        model.rmst_difference("0", "2")
    with pytest.raises(ConfigurationError, match="horizon"):
        model.restricted_mean(1e6)
    assert model.rmst_["0"] == model.restricted_mean(model.horizon_)["0"]


def test_a_later_horizon_holds_for_exact_times():
    model = fit({"a": one_column([1.0, 2.0, 9.0], [1, 1, 0])}, times="exact", horizon=8.0, policy=OPEN)
    assert model.horizon_ == 8.0
    assert model.rmst_["all"].value == pytest.approx(1 + 2 / 3 + 6 / 3)
    assert model.survival_at([0.0, 7.9, 8.1]).round(3).tolist()[0][:2] == [1.0, 0.333]
    assert np.isnan(model.survival_at([8.1])[0, 0])


@pytest.mark.parametrize("unfit", [{"confidence_level": 1.0}, {"intervals": "cloglog"}, {"cause": 0}], ids=str)
def test_options_that_are_none_are_refused(unfit):
    with pytest.raises((ConfigurationError, DataError)):
        fit(simulated(), **unfit)


def test_an_unknown_column_is_refused_before_anything_is_counted():
    with pytest.raises(ConfigurationError, match="must be a column or category"):
        fit(simulated(), "arm")


def test_odd_sites():
    rng = np.random.default_rng(0)
    time = rng.exponential(10.0, 60)
    sites = {
        "no event": one_column(time, np.zeros(60), rng.integers(0, 2, 60)),
        "one group": one_column(time + 1, np.ones(60), np.ones(60)),
        "usual": one_column(time + 2, rng.integers(0, 2, 60), rng.integers(0, 2, 60)),
    }
    model = fit(sites, "arm", n_times=8)
    assert sum(model.n_patients_.values()) == 180
    assert model.n_left_out_ == 0
    assert (np.diff(model.survival_, axis=1) <= 1e-12).all()
    assert ((model.survival_ >= 0) & (model.survival_ <= 1)).all()
    assert model.n_patients_["1"] > 60


def test_no_event_anywhere_and_an_empty_group_are_named():
    with pytest.raises(DataError, match="must have an event"):
        fit({"a": one_column(np.arange(30.0), np.zeros(30))}, policy=OPEN)
    with pytest.raises(DataError, match="got none in 1"):
        fit({"a": one_column(np.arange(30.0), np.ones(30))}, "arm", policy=OPEN)


def test_one_site_is_enough():
    model = fit({"alone": mc.datasets.simulate_survival(200, random_state=1)}, policy=OPEN)
    assert model.n_patients_ == {"all": 200}


@pytest.mark.parametrize("times", [None, [5.0, 10.0, 20.0, 40.0]], ids=["quantiles", "given"])
@pytest.mark.parametrize("secure", [False, True])
def test_no_recorded_time_leaves_a_site(monkeypatch, secure, times):
    seen = []
    collect = Session.collect

    def listen(self, step, request, **options):
        answers = collect(self, step, request, **options)
        requests = request.values() if isinstance(request, dict) else [request]
        seen.extend(value for message in (*answers.values(), *requests) for *_, value in message.items())
        return answers

    monkeypatch.setattr(Session, "collect", listen)
    sites = simulated()
    model = fit(sites, "x2", times=times, secure_sum=secure, policy=mc.Policy(min_patients=0))
    model.by_site()
    numbers = np.concatenate([np.ravel(np.asarray(v, float)) for v in seen if np.asarray(v).dtype.kind in "iuf"])
    recorded = np.concatenate([data.time for data in sites.values()])
    assert len(numbers) > 100
    assert not np.isin(numbers, recorded).any()
    told = fit(sites, times="exact", policy=OPEN)
    assert np.isin(told.times_, recorded).all()


def test_curves_by_site_are_those_of_its_patients_at_recorded_times():
    sites = simulated()
    found = fit(sites, times="exact", policy=OPEN).by_site()
    for site, curves in found.items():
        alone = fit({site: sites[site]}, times="exact", policy=OPEN)
        assert curves.table.n_patients.tolist() == [len(sites[site])]
        np.testing.assert_allclose(curves.survival_at(alone.times_), alone.survival_, rtol=1e-12)


def test_assessment_is_the_distance_to_the_curves_of_others():
    sites = simulated()
    model = fit(sites, "x2")
    pooled = mc.data.SurvivalData(
        np.concatenate([d.X for d in sites.values()]),
        np.concatenate([d.time for d in sites.values()]),
        np.concatenate([d.event for d in sites.values()]),
    )
    assert model.assess(pooled)["distance"] < 1e-9
    assert 0.01 < model.assess(sites["site-0"])["distance"] < 0.5


def test_a_saved_model_is_the_same(tmp_path):
    model = fit(simulated(), "x2", times=np.array([5.0, 10.0, 30.0]))
    model.save(tmp_path)
    back = KaplanMeier.load(tmp_path)
    np.testing.assert_array_equal(back.survival_, model.survival_)
    assert back.rmst_ == model.rmst_
    assert back.groups_ == ("0", "1")


def test_only_the_steps_that_were_named_are_asked():
    federation = mc.Federation.in_process(simulated(), policy=OPEN, secure_sum=False)
    for options in ({}, {"times": "exact"}, {"times": [5.0, 20.0]}):
        model = KaplanMeier(**options)
        before = {site: len(ledger.entries) for site, ledger in federation.ledgers.items()}
        model.fit(federation).by_site()
        asked = {e["step"] for site, ledger in federation.ledgers.items() for e in ledger.entries[before[site] :]}
        assert asked <= model.planned_steps()
        assert model.planned_steps() - asked <= {"describe", "agree"} | GAP_STEPS


def test_what_is_shown():
    model = fit(simulated(), "x2")
    figure, table = model.figures({}, {})
    assert isinstance(figure, Curves)
    assert isinstance(table, Table)
    assert read_figure(figure.to_dict()) == figure
    assert [band.name for band in figure.bands] == ["x2 0", "x2 1"]
    assert figure.bands[0].y[0] == 1.0
    assert figure.at_risk["x2 0"][0] == model.n_patients_["0"]
    assert all(number is None or number == 0 or number >= 10 for row in figure.at_risk.values() for number in row)
    svg = draw(figure)
    assert "at risk" in svg
    assert f"{model.n_patients_['1']}" in svg
    assert "survival over time (months)" in describe(figure)
    assert [row[0] for row in table.rows] == ["x2 0", "x2 1"]


def test_the_frame_has_a_row_for_each_group_and_time():
    model = fit(simulated(), "x2", n_times=8)
    frame = model.to_frame()
    assert len(frame) == 2 * len(model.times_)
    assert frame.loc[frame.group == "1", "survival"].to_numpy() == pytest.approx(model.survival_[1])


@pytest.mark.parametrize("kind", [mc.survival.KaplanMeier, mc.survival.AalenJohansen])
@pytest.mark.parametrize("at", [None, [7.0, 13.0]])
def test_stated_times_are_times_of_the_grid_and_their_numbers_at_risk_are_those_of_the_patients(kind, at):
    data = mc.datasets.simulate_survival(600, random_state=3, competing=kind is mc.survival.AalenJohansen)
    sites = {name: data.take(np.arange(place, 600, 2)) for place, name in enumerate(["lyon", "oslo"])}
    with mc.Federation.in_process(sites) as federation:
        model = kind(at=at).fit(federation)
    figure = model.figures({}, {})[0]
    stated = [time for time in figure.positions if time > 0]
    assert len(model.times_) <= 64
    assert {*stated, *(at or ())} <= set(model.times_.tolist())
    numbers = next(iter(figure.at_risk.values()))
    events_at_stated = [(data.time == time).sum() for time in stated]
    assert not any(events_at_stated)  # recorded times are no round numbers
    assert numbers[1:] == [float((data.time > time).sum()) for time in stated]


@pytest.mark.parametrize("kind", [mc.survival.KaplanMeier, mc.survival.AalenJohansen])
def test_stated_times_choose_the_table_and_leave_the_axis(kind):
    data = mc.datasets.simulate_survival(300, random_state=3, competing=kind is mc.survival.AalenJohansen)
    with mc.Federation.in_process({"lyon": data, "oslo": data}) as federation:
        plain, early = (kind(at=at).fit(federation) for at in (None, [6.0]))
    shown, cut = plain.figures({}, {})[0], early.figures({}, {})[0]
    assert cut.positions == shown.positions
    assert cut.end == shown.end == early.horizon_
    axes = early.plot()
    assert axes.get_xlim() == (0.0, early.horizon_)
    assert axes.get_xticks().tolist() == list(cut.positions)
    assert set(next(table for name, table in early.result_tables().items() if "at-times" in name)["time"]) == {6.0}


def test_numbers_at_risk_stand_at_times_of_a_coarse_grid_alone():
    data = mc.datasets.simulate_survival(400, random_state=3)
    with mc.Federation.in_process({"lyon": data, "oslo": data}) as federation:
        model = mc.survival.KaplanMeier(times=np.arange(1.5, 40.0, 2.9)).fit(federation)
    figure = model.figures({}, {})[0]
    assert set(figure.positions) <= {0.0, *model.times_.tolist()}
    assert "linear between the 14 times" in figure.caption
