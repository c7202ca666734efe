"""The message in docs/stewards.md: its digits add up to the patients, and a repeated study gives other digits."""

import re
from pathlib import Path

import multicentre as mc
from multicentre.engines.in_process import InProcess

PAGE = (Path(__file__).parents[2] / "docs" / "stewards.md").read_text(encoding="utf-8")
ROWS = {
    name: (int(count), int(digits))
    for name, count, digits in re.findall(r"^\| (\w+) \| (\d+) \| (\d{10,}) \|$", PAGE, re.M)
}


def sent_in_one_run(monkeypatch):
    """First number of the first sum that each site sends in a Cox model over hospitals of the page's sizes."""
    sent, exchange = [], InProcess.exchange

    def record(self, calls, time_limit_s):
        outcomes = exchange(self, calls, time_limit_s)
        if {call.step.name for call in calls.values()} == {"count_gaps"}:
            sent.append({site: int(outcome.vector[0]) for site, outcome in outcomes.items()})
        return outcomes

    sites = {
        site: mc.datasets.simulate_survival(n_patients, n_columns=2, random_state=seed)
        for seed, (site, (n_patients, _)) in enumerate(ROWS.items())
    }
    with monkeypatch.context() as patch:
        patch.setattr(InProcess, "exchange", record)
        with mc.Federation.in_process(sites) as federation:
            mc.survival.FedCox().fit(federation)
    return sent[0]


def test_digits_of_the_page_add_up_to_the_patients():
    counts, digits = zip(*ROWS.values(), strict=True)
    assert len(ROWS) == 3
    assert sum(digits) % 2**64 == sum(counts)
    assert f"| sum | {sum(counts)} | {sum(counts)}, modulo 2^64 |" in PAGE


def test_a_repeated_study_sends_other_digits_with_the_same_sum(monkeypatch):
    first, second = sent_in_one_run(monkeypatch), sent_in_one_run(monkeypatch)
    printed = {site: digits for site, (_, digits) in ROWS.items()}
    total = sum(count for count, _ in ROWS.values())
    for run in (first, second):
        assert sum(run.values()) % 2**64 == total
    for site in ROWS:
        assert len({first[site], second[site], printed[site]}) == 3
