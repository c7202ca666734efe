"""A ledger as a table: one row per step, with what left and how it was protected."""

import numpy as np

import multicentre as mc


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
