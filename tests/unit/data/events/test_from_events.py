"""Counting against a reference in plain Python, and the cases that are easily counted wrongly."""

import datetime
import itertools
import logging
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.data import CodesReadAsNumbers, EventTensor
from multicentre.errors import ConfigurationError, DataError
from support.examples import examples

MODES = {"procedure": "icd9cm-proc", "diagnosis": "icd9cm-dx"}
THREE = {**MODES, "drug": "atc"}
START = datetime.date(2019, 12, 20)


def table(rows):
    names = ("patient", "date", "system", "code", "admission")
    return {name: [row[k] for row in rows] for k, name in enumerate(names)}


def pair(day_of_procedure="2020-01-01", day_of_diagnosis="2020-01-01", procedure="39.95", diagnosis="428.0"):
    return table(
        [("a", day_of_procedure, "icd9cm-proc", procedure, "1"), ("a", day_of_diagnosis, "icd9cm-dx", diagnosis, "1")]
    )


def counts_by_name(tensor):
    names = [tensor.codes[mode] for mode in tensor.modes]
    return {
        (str(tensor.ids[i]), *(listed[c] for listed, c in zip(names, codes, strict=True))): count
        for (i, *codes), count in zip(tensor.coordinates.tolist(), tensor.counts.tolist(), strict=True)
    }


def reference(rows, modes, anchor, days):
    """Count in plain Python: events as sets, then every choice of one event a mode."""
    mode_of = {system: mode for mode, system in modes.items()}
    events = {
        (who, datetime.date.fromisoformat(date).toordinal(), mode_of[system], f"{system}:{code}", admission)
        for who, date, system, code, admission in rows
        if system in mode_of
    }
    first = {who: min(event[1] for event in events if event[0] == who) for who in {event[0] for event in events}}
    origin = datetime.date(2000, 1, 1).toordinal()
    window_of = {
        "first_event": lambda event: (event[1] - first[event[0]]) // days,
        "calendar": lambda event: (event[1] - origin) // days,
        "admission": lambda event: event[4],
        "sliding": lambda event: event[1],
    }[anchor]
    held = {(event[0], window_of(event), event[2], event[3]) for event in events}
    counts = Counter()
    for who in first:
        sides = [[event for event in held if event[0] == who and event[2] == mode] for mode in modes]
        for choice in itertools.product(*sides):
            windows = [event[1] for event in choice]
            close = max(windows) - min(windows) <= days if anchor == "sliding" else len(set(windows)) == 1
            counts[(who, *(event[3] for event in choice))] += close
    return {key: count for key, count in counts.items() if count}


event = st.tuples(
    st.sampled_from(["a", "b", "c"]),
    st.integers(0, 75).map(lambda day: (START + datetime.timedelta(days=day)).isoformat()),
    st.sampled_from(["icd9cm-proc", "icd9cm-dx", "atc"]),
    st.sampled_from(["10", "010", "4019"]),
    st.sampled_from(["x", "y"]),
)
COMPLETE = [("z", "2020-01-01", system, "1", "x") for system in THREE.values()]


@pytest.mark.parametrize("anchor", ["first_event", "calendar", "admission", "sliding"])
@pytest.mark.parametrize("modes", [MODES, THREE], ids=["two modes", "three modes"])
@examples(12)
@given(st.lists(event, max_size=40), st.sampled_from([1, 7, 30]), st.randoms())
def test_counts_are_those_of_the_plain_reference(anchor, modes, drawn, days, shuffler):
    rows = COMPLETE + drawn
    tensor = EventTensor.from_events(table(rows), modes=modes, anchor=anchor, window_days=days)
    assert counts_by_name(tensor) == reference(rows, modes, anchor, days)
    assert all(list(codes) == sorted(codes) for codes in tensor.codes.values())
    shuffler.shuffle(rows)
    again = EventTensor.from_events(table(rows + rows[:5]), modes=modes, anchor=anchor, window_days=days)
    assert again.digest() == tensor.digest()


class TestWhatIsEasilyCountedWrongly:
    def test_codes_with_and_without_dots_blanks_and_capitals_are_one(self):
        rows = [("a", "2020-01-01", "icd9cm-dx", code, "1") for code in ("V45.81", "v4581", " V45 81 ")]
        tensor = EventTensor.from_events(table([*rows, ("a", "2020-01-01", "icd9cm-proc", "00.40", "1")]), modes=MODES)
        assert tensor.codes == {"procedure": ("icd9cm-proc:0040",), "diagnosis": ("icd9cm-dx:V4581",)}
        assert tensor.counts.tolist() == [1.0]

    def test_leading_zeros_make_other_codes(self):
        rows = [("a", "2020-01-01", "icd9cm-proc", code, "1") for code in ("0040", "040", "40")]
        tensor = EventTensor.from_events(table([*rows, ("a", "2020-01-01", "icd9cm-dx", "0030", "1")]), modes=MODES)
        assert tensor.codes["procedure"] == ("icd9cm-proc:0040", "icd9cm-proc:040", "icd9cm-proc:40")

    def test_the_same_code_of_two_systems_stays_two(self):
        tensor = EventTensor.from_events(pair(procedure="40.19", diagnosis="401.9"), modes=MODES)
        assert tensor.codes == {"procedure": ("icd9cm-proc:4019",), "diagnosis": ("icd9cm-dx:4019",)}
        one_mode = {"all": ["icd9cm-proc", "icd9cm-dx"], "drug": "atc"}
        rows = [
            ("a", "2020-01-01", s, c, "1") for s, c in (("icd9cm-proc", "4019"), ("icd9cm-dx", "4019"), ("atc", "C"))
        ]
        assert EventTensor.from_events(table(rows), modes=one_mode).shape == (1, 2, 1)

    @pytest.mark.parametrize(("day", "n_entries"), [("2020-01-30", 1), ("2020-01-31", 0)])
    def test_day_30_belongs_to_the_next_window(self, day, n_entries):
        for first, second in ((day, "2020-01-01"), ("2020-01-01", day)):
            assert EventTensor.from_events(pair(first, second), modes=MODES, keep_empty=True).nnz == n_entries

    def test_events_listed_twice_count_once(self):
        once, twice = pair(), {name: cells * 2 for name, cells in pair().items()}
        for anchor in ("first_event", "sliding"):
            tensors = [EventTensor.from_events(rows, modes=MODES, anchor=anchor) for rows in (once, twice)]
            assert tensors[0].digest() == tensors[1].digest()

    @pytest.mark.parametrize(
        "dates",
        [
            ["2020-01-01T23:30:00-08:00", "2020-01-30 00:10:00+09:00"],
            ["20200101", "20200130"],
            [20200101, 20200130],
            [20200101.0, 20200130.0],
            ["2020-01-01 23:59:59.5", "2020-01-30T00:00Z"],
            pd.to_datetime(["2020-01-01 23:30", "2020-01-30 00:10"]),
            pd.to_datetime(["2020-01-01 23:30", "2020-01-30 00:10"]).tz_localize("America/New_York"),
            np.array(["2020-01-01", "2020-01-30"], dtype="datetime64[D]"),
            [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 30, 23)],  # noqa: DTZ001
        ],
        ids=["offsets", "compact", "whole", "float", "times", "timestamps", "zone", "numpy", "objects"],
    )
    def test_a_date_is_the_day_written_whatever_the_time_and_zone(self, dates):
        near = EventTensor.from_events(pair() | {"date": dates}, modes=MODES, window_days=30, keep_empty=True)
        far = EventTensor.from_events(pair() | {"date": dates}, modes=MODES, window_days=29, keep_empty=True)
        assert (near.nnz, far.nnz) == (1, 0)


class TestWhatCanBeAsked:
    def test_polars_pandas_and_mappings_are_read_alike(self):
        rows = pair("2020-01-01T23:30:00", "2020-01-30T00:10:00")
        moments = pl.Series(rows["date"]).str.to_datetime().dt.replace_time_zone("Asia/Tokyo")
        tables = [rows, pd.DataFrame(rows, index=[7, 7]), pl.DataFrame(rows), pl.DataFrame(rows | {"date": moments})]
        tables.append(pl.DataFrame(rows | {"date": moments.dt.date(), "patient": ["a", "a"]}))
        assert len({EventTensor.from_events(one, modes=MODES).digest() for one in tables}) == 1

    def test_columns_may_have_other_names(self):
        rows = {name.upper(): cells for name, cells in pair().items()}
        names = {name: name.upper() for name in pair()}
        assert EventTensor.from_events(rows, modes=MODES, columns=names).nnz == 1
        with pytest.raises(DataError, match="dates must be in ISO 8601; 2 of 2 are missing or in a different format"):
            EventTensor.from_events(rows | {"DATE": ["?", "!"]}, modes=MODES, columns=names)

    def test_windows_begin_at_events_of_the_modes_only(self):
        rows = table([("a", "2019-12-15", "atc", "C", "1")])
        joined = {name: cells + rows[name] for name, cells in pair("2020-01-01", "2020-01-20").items()}
        assert EventTensor.from_events(joined, modes=MODES).nnz == 1

    def test_windows_of_the_calendar_begin_at_the_origin(self):
        rows = pair("2020-01-01", "2020-01-20")
        nnz = [
            EventTensor.from_events(rows, modes=MODES, anchor="calendar", origin=day, keep_empty=True).nnz
            for day in ("2020-01-01", "2020-01-10", "2020-03-01")
        ]
        assert nnz == [1, 0, 1]

    def test_admissions_need_no_date(self):
        rows = {name: cells for name, cells in pair().items() if name != "date"}
        assert EventTensor.from_events(rows, modes=MODES, anchor="admission").nnz == 1
        apart = rows | {"admission": [1, 2]}
        assert EventTensor.from_events(apart, modes=MODES, anchor="admission", keep_empty=True).nnz == 0

    def test_counts_are_capped_or_binary(self):
        day = [f"2020-0{month}-01" for month in range(1, 8)]
        rows = table([("a", d, s, c, "1") for d in day for s, c in (("icd9cm-proc", "1"), ("icd9cm-dx", "2"))])
        tensors = [EventTensor.from_events(rows, modes=MODES, **how) for how in ({}, {"cap": 3}, {"binary": True})]
        assert [tensor.counts.tolist() for tensor in tensors] == [[7.0], [3.0], [1.0]]

    def test_a_vocabulary_keeps_its_order_and_moves_no_window(self):
        rows = table(
            [
                ("a", "2020-01-01", "icd9cm-dx", "1", "1"),
                ("a", "2020-01-20", "icd9cm-proc", "2", "1"),
                ("a", "2020-02-05", "icd9cm-dx", "3", "1"),
            ]
        )
        listed = {"procedure": ["icd9cm-proc:9", "icd9cm-proc:2"], "diagnosis": ["icd9cm-dx:3", "icd9cm-dx:1"]}
        tensor = EventTensor.from_events(rows, modes=MODES, vocabulary=listed)
        assert tensor.codes == {mode: tuple(codes) for mode, codes in listed.items()}
        assert tensor.coordinates.tolist() == [[0, 1, 1]]
        only_late = listed | {"diagnosis": ["icd9cm-dx:3"]}
        assert EventTensor.from_events(rows, modes=MODES, vocabulary=only_late, keep_empty=True).nnz == 0

    def test_outcomes_follow_the_patients(self):
        rows = table([(who, "2020-01-01", s, "1", "1") for who in (9, 10) for s in MODES.values()])
        for outcomes in ({9: 1, 10: 0, 11: 1}, pd.Series({9: 1, 10: 0})):
            tensor = EventTensor.from_events(rows, modes=MODES, outcomes=outcomes)
            assert dict(zip(tensor.ids.tolist(), tensor.outcomes.tolist(), strict=True)) == {"9": 1, "10": 0}
        with pytest.raises(DataError, match="every patient must have an outcome; 1 of 2 have none"):
            EventTensor.from_events(rows, modes=MODES, outcomes={9: 1})

    def test_outcomes_that_contradict_each_other_are_said(self):
        rows = table([(who, "2020-01-01", s, "1", "1") for who in (9, 10) for s in MODES.values()])
        for outcomes in (pd.Series([1, 0, 0], index=["9", "10", "9"]), {9: 1, "9": 0, 10: 0}):
            with pytest.raises(
                DataError, match="outcomes: every patient must have one outcome; 1 have two different ones"
            ):
                EventTensor.from_events(rows, modes=MODES, outcomes=outcomes)
        twice = pd.Series([1, 0, 1], index=["9", "10", "9"])
        assert sorted(EventTensor.from_events(rows, modes=MODES, outcomes=twice).outcomes) == [0, 1]
        with pytest.raises(DataError, match="values of 0 or 1"):
            EventTensor.from_events(rows, modes=MODES, outcomes={9: np.nan, 10: 0})

    def test_patients_without_an_entry_are_left_out_and_the_log_says_how_many(self, caplog):
        rows = pair()
        rows = {
            name: [*cells, extra]
            for (name, cells), extra in zip(rows.items(), ("b", "2020-01-01", "atc", "C", "1"), strict=True)
        }
        with caplog.at_level(logging.INFO, "multicentre.data.events"):
            assert EventTensor.from_events(rows, modes=MODES).ids.tolist() == ["a"]
        assert [record.getMessage() for record in caplog.records] == [
            "Left out 1 of 2 patients without codes of every mode in one window"
        ]
        assert EventTensor.from_events(rows, modes=MODES, keep_empty=True).ids.tolist() == ["a", "b"]


class TestMostEntries:
    @staticmethod
    def rows(patients):
        return table(
            [
                (who, "2020-01-01", system, str(code), "1")
                for who in patients
                for system in MODES.values()
                for code in range(6)
            ]
        )

    def test_every_patient_keeps_so_many_of_the_own_entries(self):
        full = counts_by_name(EventTensor.from_events(self.rows("abc"), modes=MODES))
        kept = counts_by_name(EventTensor.from_events(self.rows("abc"), modes=MODES, max_entries=5))
        assert Counter(key[0] for key in kept) == dict.fromkeys("abc", 5)
        assert kept.items() <= full.items()

    def test_other_patients_change_nothing_and_the_seed_does(self):
        def drawn(patients, seed):
            tensor = EventTensor.from_events(self.rows(patients), modes=MODES, max_entries=5, random_state=seed)
            return {key[1:] for key in counts_by_name(tensor) if key[0] == "b"}

        assert drawn("abc", 0) == drawn("b", 0) == drawn("bz", 0)
        assert len({frozenset(drawn("b", seed)) for seed in range(5)}) > 1

    def test_draws_of_patients_differ_and_are_uniform(self):
        patients = [f"p{k}" for k in range(400)]
        kept = counts_by_name(EventTensor.from_events(self.rows(patients), modes=MODES, max_entries=9))
        often = Counter(key[1:] for key in kept)
        assert len(often) == 36
        deviation = (np.array(list(often.values())) - 100) / np.sqrt(400 * 0.25 * 0.75)
        assert np.abs(deviation).max() < 4.5


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (
                {"date": ["2020-01-01", "soon"]},
                "dates must be in ISO 8601; 1 of 2 are missing or in a different format",
            ),
            ({"date": ["2020-02-31", None]}, "dates must be in ISO 8601; 2 of 2 are missing or in a different format"),
            ({"date": [1, 2]}, "dates must be in ISO 8601; 2 of 2 are missing or in a different format"),
            (
                {"date": ["01/02/2020", "2020-1-2"]},
                "dates must be in ISO 8601; 2 of 2 are missing or in a different format",
            ),
            (
                {"date": pd.to_datetime(["2020-01-01", None])},
                "dates must be in ISO 8601; 1 of 2 are missing or in a different format",
            ),
            ({"patient": ["a", None]}, "column 'patient': every event must have a value; 1 of 2 events have none"),
            ({"patient": ["a", "  "]}, "column 'patient': every event must have a value; 1 of 2 events have none"),
            ({"code": ["1", np.nan]}, "column 'code': every event must have a value; 1 of 2 events have none"),
            ({"code": ["1", " . "]}, "column 'code': every event must have a value; 1 of 2 events have none"),
            ({"code": [428.0, 39.95]}, "column 'code': codes must be text; got decimal numbers"),
            ({"code": ["428.0", 39.95]}, "column 'code': codes must be text; got decimal numbers"),
            (
                {"system": ["icd9cm-proc", "icd9"]},
                "code systems must be supported or named in modes; 1 of 2 events have another one",
            ),
            (
                {"system": ["icd9cm-proc", None]},
                "column 'system': every event must have a value; 1 of 2 events have none",
            ),
            (
                {"system": ["icd9cm-dx", "icd9cm-dx"]},
                "mode 'procedure': every mode must have at least one event; this mode has none",
            ),
            ({"code": ["1"]}, "columns must have equal lengths"),
            ({"code": [["soon"], "1"]}, "column 'code': cells must be single values; 1 of 2 are lists"),
            ({"date": [["soon"], {}]}, "column 'date': cells must be single values; 2 of 2 are lists"),
            ({"patient": ["a", np.arange(2)]}, "column 'patient': cells must be single values; 1 of 2 are lists"),
            ({name: [] for name in pair()}, "the table must have at least one event; got 0"),
        ],
    )
    def test_cells_that_cannot_be_used_are_counted_not_shown(self, change, says):
        with pytest.raises(DataError, match=says) as error:
            EventTensor.from_events(pair() | change, modes=MODES)
        assert not any(text in str(error.value) for text in ("soon", "02-31", "39.95"))

    def test_codes_read_as_numbers_warn_and_name_the_column(self):
        rows = pair() | {"code": [3995, 4280]}
        rows["kode"] = rows.pop("code")
        for source in (rows, pl.DataFrame(rows), rows | {"kode": [3995, "4280"]}):
            with pytest.warns(CodesReadAsNumbers, match="column 'kode'"):
                tensor = EventTensor.from_events(source, modes=MODES, columns={"code": "kode"})
            assert tensor.codes["diagnosis"] == ("icd9cm-dx:4280",)

    def test_a_column_that_is_not_there_is_named(self):
        rows = {name: cells for name, cells in pair().items() if name != "date"}
        with pytest.raises(DataError, match="the column must be in the table"):
            EventTensor.from_events(rows, modes=MODES)
        with pytest.raises(DataError, match="the column must be in the table"):
            EventTensor.from_events(rows, modes=MODES, columns={"date": "day"})

    def test_no_patient_with_every_mode_is_said(self):
        with pytest.raises(
            DataError, match="at least one patient must have codes of every mode in one window; none has"
        ):
            EventTensor.from_events(pair("2020-01-01", "2020-06-01"), modes=MODES)

    def test_what_is_no_table_is_said(self):
        with pytest.raises(
            DataError, match="events must be a pandas, polars or arrow table or a mapping of columns; got list"
        ):
            EventTensor.from_events([("a", "2020-01-01")], modes=MODES)

    def test_a_vocabulary_of_other_modes_is_said(self):
        with pytest.raises(DataError, match="vocabulary must have the modes procedure, diagnosis; got drug"):
            EventTensor.from_events(pair(), modes=MODES, vocabulary={"drug": ["atc:C"]})

    @pytest.mark.parametrize("listed", ["icd9cm-proc:1", None, 5, [1], [["icd9cm-proc:1"]], ["x", "x"], ["\ud800"]])
    def test_a_mode_of_a_vocabulary_is_a_list_of_codes(self, listed):
        with pytest.raises(DataError, match="vocabulary, mode 'procedure'"):
            EventTensor.from_events(
                pair(), modes=MODES, vocabulary={"procedure": listed, "diagnosis": ["icd9cm-dx:4280"]}
            )

    @pytest.mark.parametrize(
        ("asked", "says"),
        [
            ({"modes": {"all": "icd9cm-dx"}}, "modes must be a mapping of at least two modes to code systems"),
            (
                {"modes": ["icd9cm-proc", "icd9cm-dx"]},
                "modes must be a mapping of at least two modes to code systems",
            ),
            (
                {"modes": MODES | {"diagnosis": None}},
                "modes, 'diagnosis': a mode must be text, with one code system or a list of them",
            ),
            (
                {"modes": MODES | {"diagnosis": [1]}},
                "modes, 'diagnosis': a mode must be text, with one code system or a list of them",
            ),
            (
                {"modes": {1: "icd9cm-proc", "b": "icd9cm-dx"}},
                "modes, 1: a mode must be text, with one code system or a list of them",
            ),
            (
                {"outcomes": [1, 0]},
                "outcomes must be a mapping from patient to 0 or 1, or a pandas Series; got list",
            ),
            ({"vocabulary": ["icd9cm-proc:1"]}, "vocabulary must be a mapping; got list"),
            ({"columns": ["patient"]}, "columns must be a mapping; got list"),
            ({"window_days": 2**62}, "window_days"),
            ({"window_days": 2**62, "anchor": "sliding"}, "window_days"),
            ({"origin": None, "anchor": "calendar"}, "origin must be a date in ISO 8601"),
            ({"origin": "NaT"}, "origin must be a date in ISO 8601"),
            (
                {"modes": {"a": "icd9cm-dx", "b": ["icd9cm-proc", "icd9cm-dx"]}},
                "a code system must be in one mode",
            ),
            ({"modes": {"a": "icd9cm-dx", "b": []}}, "mode 'b': a mode must have at least one code system; got 0"),
            ({"modes": MODES | {"drug": "drugs"}}, "code systems must be supported or in the table; got 'drugs'"),
            ({"window_days": 0}, "window_days"),
            ({"window_days": -30}, "window_days"),
            ({"window_days": 2.5}, "window_days"),
            (
                {"anchor": "birth"},
                "anchor must be one of 'first_event', 'calendar', 'admission', 'sliding'; got 'birth'",
            ),
            ({"origin": "once"}, "origin"),
            ({"cap": 0}, "cap"),
            ({"cap": 3, "binary": True}, "cap"),
            ({"max_entries": 0}, "max_entries"),
            ({"random_state": -1}, "random_state"),
            ({"columns": {"who": "patient"}}, "roles must be among patient, date, system, code, admission; got 'who'"),
        ],
    )
    def test_arguments_out_of_range_are_said(self, asked, says):
        with pytest.raises(ConfigurationError, match=says):
            EventTensor.from_events(pair(), **{"modes": MODES} | asked)

    def test_a_system_of_ones_own_may_be_named_in_modes(self):
        rows = pair() | {"system": ["icd9cm-proc", "Lyon-codes"]}
        tensor = EventTensor.from_events(rows, modes={"procedure": "icd9cm-proc", "local": "lyon-codes"})
        assert tensor.codes["local"] == ("lyon-codes:428.0",)
