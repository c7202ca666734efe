"""What studies do with data of any kind: whether sites fit together, their patients as one, one patient exaggerated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.data import EventTensor, MultiViewData, SurvivalData
from multicentre.data.concatenate import check_together, concatenate
from multicentre.data.kinds import KINDS, kind_of
from multicentre.data.records import add_record, amplify_record
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch
from support.events_toy import random_events


def views(n=6, seed=0):
    values = np.random.default_rng(seed).normal(size=(n, 3))
    values[0, :2] = np.nan
    return MultiViewData({"blood": values[:, :2], "image": values[:, 2:]}, ids=range(n))


def times(n=6, seed=0, **kwargs):
    values = np.random.default_rng(seed).normal(size=(n, 3))
    values[:, 2] = values[:, 2] > 0
    values[0, 0] = np.nan
    known = {"ids": range(n), "columns": ["age", "image_0", "sex=f"], "unit": "days"} | kwargs
    return SurvivalData(values, np.arange(n) + 1.0, np.arange(n) % 3, **known)


def dense(tensor, codes):
    """Return every count of a tensor by (patient, code of each mode), codes by name."""
    table = np.zeros((len(tensor), *(len(names) for names in codes.values())))
    place = [{name: position for position, name in enumerate(names)} for names in codes.values()]
    for row, entry in enumerate(tensor.coordinates):
        names = [tensor.codes[mode][position] for mode, position in zip(tensor.modes, entry[1:], strict=True)]
        table[(entry[0], *(place[axis][name] for axis, name in enumerate(names)))] = tensor.counts[row]
    return table


@pytest.mark.parametrize("data", [views(), random_events(6), times()], ids=["views", "events", "times"])
def test_every_kind_offers_what_studies_ask(data):
    assert len(data) == len(data.ids) == 6
    assert all(0 < count <= 6 for count in data.parts.values())
    some = data.take([1, 4])
    assert some.ids.tolist() == [data.ids[1], data.ids[4]]
    assert data.digest() == data.take(range(6)).digest() != some.digest()
    fewer = data.keep_columns(["image_0", "mode-0", "m1:00"])
    assert len(fewer) == 6
    assert fewer.digest() != data.digest()
    with pytest.raises(DataError):
        data.keep_columns(["nothing"])


def test_parts_of_views_count_patients_with_an_entry():
    assert views().parts == {"blood": 5, "image": 6}


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 99))
def test_stacked_events_hold_each_site_s_counts_over_all_codes(sizes, seed):
    sites = {}
    for number, n in enumerate(sizes):
        whole = random_events(n, seed=seed + number)
        kept = {
            mode: [name for place, name in enumerate(names[::-1]) if place == 0 or (place + number) % 3]
            for mode, names in whole.codes.items()
        }
        sites[f"s{number}"] = whole.align(kept)
    both = concatenate(sites)
    for mode in both.modes:
        assert set(both.codes[mode]) == {name for data in sites.values() for name in data.codes[mode]}
        assert len({data.codes[mode] for data in sites.values()}) == 1 or list(both.codes[mode]) == sorted(
            both.codes[mode]
        )
    expected = np.concatenate([dense(data, both.codes) for data in sites.values()])
    np.testing.assert_array_equal(dense(both, both.codes), expected)
    assert both.ids.tolist() == [f"{site}/{one}" for site, data in sites.items() for one in data.ids]
    assert both.outcomes.tolist() == [one for data in sites.values() for one in data.outcomes]


def test_identifiers_and_outcomes_stay_when_every_site_has_them():
    lyon, oslo = random_events(3), random_events(4, seed=1, ids=None, outcomes=None)
    both = concatenate({"lyon": lyon, "oslo": oslo})
    assert both.ids is None
    assert both.outcomes is None
    assert len(both) == 7


def test_an_agreed_list_of_codes_keeps_its_order():
    lyon = random_events(3)
    turned = {mode: names[::-1] for mode, names in lyon.codes.items()}
    both = concatenate({"lyon": lyon.align(turned), "oslo": random_events(2, seed=1).align(turned)})
    assert both.codes == turned


def test_rows_stack_in_the_order_of_the_sites():
    assert concatenate({"b": np.ones((1, 2)), "a": np.zeros((1, 2))}).tolist() == [[1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    "sites",
    [
        {"lyon": random_events(3), "oslo": random_events(3, n_codes=(4, 5, 2))},
        {"lyon": views(), "oslo": MultiViewData({"blood": np.ones((2, 3))})},
        {"lyon": np.zeros((2, 2)), "oslo": np.zeros((2, 3))},
    ],
    ids=["modes", "views", "rows"],
)
def test_sites_that_differ_are_named(sites):
    for together in (check_together, concatenate):
        with pytest.raises(SchemaMismatch) as caught:
            together(sites)
        assert "oslo" in str(caught.value)


def test_codes_may_differ_between_sites():
    check_together({"lyon": random_events(3), "oslo": random_events(3).keep_columns(["mode-0", "m1:00"])})


def test_sites_of_several_kinds_or_none_or_an_unknown_one():
    with pytest.raises(ConfigurationError, match="MultiViewData, EventTensor"):
        concatenate({"lyon": views(), "oslo": random_events(3)})
    for together in (check_together, concatenate):
        with pytest.raises(DataError, match="sites must contain at least one site"):
            together({})
    with pytest.raises(ConfigurationError, match="dict"):
        check_together({"lyon": {}})


def test_another_kind_joins_by_one_line(monkeypatch):
    class Cohort(EventTensor):
        pass

    class Stays:
        pass

    assert kind_of(Cohort([[0, 0, 0]], [1.0], {"a": ["x"], "b": ["y"]})) is KINDS[EventTensor]
    monkeypatch.setitem(KINDS, Stays, KINDS[np.ndarray])
    assert kind_of(Stays()) is KINDS[np.ndarray]


def test_a_patient_s_counts_are_multiplied_and_codes_stay():
    data = random_events(5)
    record = amplify_record(data, 3, 1e8)
    np.testing.assert_array_equal(dense(record, data.codes)[0], 1e8 * dense(data, data.codes)[3])
    assert record.codes == data.codes
    assert record.ids.tolist() == ["3"]
    assert record.outcomes.tolist() == [data.outcomes[3]]


def test_counts_that_cannot_be_are_left_out():
    data = random_events(3)
    nothing = amplify_record(data, 1, 0.0)
    assert (len(nothing), nothing.nnz) == (1, 0)
    wide = EventTensor(
        [[0, 0, code] for code in range(400)], np.ones(400), {"a": ["x"], "b": [f"c{j}" for j in range(400)]}
    )
    drawn = amplify_record(wide, 0, 2.0, np.random.default_rng(0))
    assert 150 < drawn.nnz < 250
    assert set(drawn.counts) == {2.0}


@pytest.mark.parametrize("factor", [0.0, 1.0, 1e3])
def test_a_patient_is_added_below_with_the_same_codes(factor):
    data = random_events(4)
    data = data.align({mode: names[::-1] for mode, names in data.codes.items()})
    larger = add_record(data, amplify_record(data, 2, factor))
    assert larger.codes == data.codes
    assert len(larger) == len(set(larger.ids)) == 5
    np.testing.assert_array_equal(dense(larger, data.codes)[:4], dense(data, data.codes))
    np.testing.assert_array_equal(dense(larger, data.codes)[4], factor * dense(data, data.codes)[2])
    assert larger.outcomes.tolist() == [*data.outcomes, data.outcomes[2]]


def test_stacked_patients_keep_their_times_in_the_order_of_the_sites():
    lyon, oslo = times(4), times(3, seed=1)
    both = concatenate({"lyon": lyon, "oslo": oslo})
    np.testing.assert_array_equal(both.X, np.vstack([lyon.X, oslo.X]))
    assert both.time.tolist() == [*lyon.time, *oslo.time]
    assert both.event.tolist() == [*lyon.event, *oslo.event]
    assert both.ids.tolist() == ["lyon/0", "lyon/1", "lyon/2", "lyon/3", "oslo/0", "oslo/1", "oslo/2"]
    assert (both.columns, both.unit) == (lyon.columns, "days")
    assert concatenate({"lyon": lyon, "oslo": times(3, ids=None)}).ids is None
    assert concatenate({"lyon": lyon}).time.tolist() == lyon.time.tolist()


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (times(unit="months"), "unit must be that of lyon ('days'); got 'months'"),
        (times(unit=""), "unit must be that of lyon ('days'); got no unit"),
        (
            times(columns=["age", "image_0", "sex=m"]),
            "columns must be those of lyon, in the same order; got differences in sex=f, sex=m",
        ),
        (
            times(columns=["image_0", "age", "sex=f"]),
            "columns must be those of lyon, in the same order; got another order",
        ),
    ],
)
def test_sites_with_other_columns_or_units_are_named(other, what):
    with pytest.raises(SchemaMismatch) as caught:
        check_together({"lyon": times(), "oslo": times(seed=1), "bari": other})
    assert (caught.value.where, caught.value.what) == ("bari", what)


def test_an_amplified_patient_keeps_events_flags_and_gaps():
    data = times()
    amplified = amplify_record(data, 2, 10.0)
    np.testing.assert_array_equal(amplified.X, data.X[[2]] * [10.0, 10.0, 1.0])
    assert (amplified.time.tolist(), amplified.event.tolist()) == ([30.0], [2])
    assert np.isnan(amplify_record(data, 0, 10.0).X[0, 0])
    signed = [amplify_record(data, 2, 10.0, np.random.default_rng(seed)) for seed in range(20)]
    assert {float(np.sign(one.X[0, 0])) for one in signed} == {-1.0, 1.0}
    assert {one.time[0] for one in signed} == {30.0}
    exposed = add_record(data, amplify_record(data, 2, 0.0))
    assert (len(exposed), exposed.time[-1]) == (7, 0.0)
