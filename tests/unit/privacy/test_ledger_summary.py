"""A ledger as a table: one row per step, with what left and how it was protected."""

import numpy as np
import pandas as pd

import multicentre as mc
from multicentre.privacy.ledger_summary import COLUMNS, summarise_entries


def test_steps_of_a_fit_are_rows():
    tables = {
        site: mc.data.TableData(np.random.default_rng(seed).normal(size=(n, 2)), np.arange(n) % 3.0, outcome="number")
        for seed, (site, n) in enumerate({"lyon": 40, "oslo": 50}.items())
    }
    federation = mc.Federation.in_process(tables)
    mc.regression.FedLinearRegression().fit(federation)
    table = federation.ledgers["lyon"].to_frame()
    entries = federation.ledgers["lyon"].entries
    assert table["times"].sum() == len(entries)
    assert table["bytes"].sum() == sum(field["bytes"] for entry in entries for field in entry["fields"])
    masked = table[table["left_as"] == "masked"]
    assert masked["fewest"].tolist() == [40] * len(masked)


def test_a_refusal_is_a_row_without_numbers():
    ledger = mc.privacy.ledger.Ledger()
    ledger.append("refusal", {"method": "fed-cox", "step": "tell_times", "reason": "exact_times"})
    ledger.append("spend", {"epsilon": 1.0})
    (row,) = ledger.to_frame().to_dict("records")
    assert (row["step"], row["left_as"], row["times"], row["numbers"]) == ("tell_times", "refused", 1, 0)


def field(*shape, **counts):
    return {"shape": list(shape), "bytes": 8 * int(np.prod(shape)), **counts}


def release(*fields, **changes):
    return {
        "event": "release",
        "method": "fed-cox",
        "step": "sums",
        "protection": "masked",
        "fields": fields,
        **changes,
    }


def test_calls_of_a_step_are_added_and_the_fewest_patients_are_kept():
    table = summarise_entries(
        [
            release(field(2, 3, patients=30, records=60), field(patients=40)),
            release(field(4, patients=25), field(1, patients=0, records=31)),
            release(field(4, patients=28)),
            {"event": "spend", "bytes": 100},
        ]
    )
    (row,) = table.to_dict("records")
    assert row == {
        "method": "fed-cox",
        "step": "sums",
        "left_as": "masked",
        "times": 3,
        "numbers": 6 + 1 + 4 + 1 + 4,
        "bytes": 8 * 16,
        "fewest": 25,
    }


def test_methods_steps_and_forms_have_a_row_each_in_their_order():
    table = summarise_entries(
        [
            release(field(1, patients=9)),
            release(field(1, patients=8), protection="unmasked"),
            release(field(1), step="times"),
            release(field(1, records=7), method="fed-glm"),
            {"event": "refusal", "method": "fed-cox", "step": "sums"},
            {"event": "release"},
        ]
    )
    assert list(zip(table["method"], table["step"], table["left_as"], strict=True)) == [
        ("fed-cox", "sums", "masked"),
        ("fed-cox", "sums", "unmasked"),
        ("fed-cox", "times", "masked"),
        ("fed-glm", "sums", "masked"),
        ("fed-cox", "sums", "refused"),
        ("", "", ""),
    ]
    assert table["fewest"].tolist() == [9, 8, pd.NA, 7, pd.NA, pd.NA]
    assert table["times"].tolist() == [1] * 6
    assert str(table["fewest"].dtype) == "Int64"


def test_a_ledger_without_releases_has_the_columns_of_a_summary():
    table = summarise_entries([])
    assert list(table.columns) == list(COLUMNS)
    assert len(table) == 0
