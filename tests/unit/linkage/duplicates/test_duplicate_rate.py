"""The duplicate rate of a federation, beside the count of the same people in one place."""

from types import SimpleNamespace

import numpy as np
import pytest

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, QuorumLost, RefusedByPolicy
from multicentre.estimator.figures import read_figure
from multicentre.linkage import persons as keys
from multicentre.linkage.duplicates.estimator import UNPROVEN, estimate_duplicate_rate
from multicentre.linkage.duplicates.site import DuplicatesPart
from multicentre.linkage.pseudonyms import PseudonymKey

FREE = mc.Policy(min_patients=0)


@pytest.fixture(autouse=True)
def _same_labels(monkeypatch):
    """Hash the same people into the same buckets in every run."""
    monkeypatch.setattr(keys, "secrets", SimpleNamespace(token_bytes=lambda size: bytes(range(size))))


def people(n_persons, n_copies, n_sites=5, seed=0):
    """Return the persons of each site: everybody at one, and copies at others."""
    rng = np.random.default_rng(seed)
    held = [set() for _ in range(n_sites)]
    for person, site in enumerate(rng.integers(0, n_sites, n_persons)):
        held[site].add(person)
    while sum(map(len, held)) < n_persons + n_copies:
        held[rng.integers(n_sites)].add(int(rng.integers(n_persons)))
    return [sorted(site) for site in held]


def table(identifiers, seed=0):
    n = len(identifiers)
    return mc.data.TableData(np.random.default_rng(seed).normal(size=(n, 2)), np.arange(n) % 2, identifiers)


def federation(sites, **terms):
    named = {f"site-{place}": table([f"p{one}" for one in site]) for place, site in enumerate(sites)}
    return mc.Federation.in_process(named, **{"secure_sum": True, **terms})


@pytest.mark.parametrize(("d", "n_copies"), [(0.0, 0), (0.01, 120), (0.05, 600), (0.167, 2004)])
def test_rate_is_within_the_accepted_error(d, n_copies):
    sites = people(12_000 - n_copies, n_copies)
    controls = ["TEST PATIENT A"]
    named = {f"s{place}": table([*(f"p{one}" for one in site), *controls]) for place, site in enumerate(sites)}
    found = estimate_duplicate_rate(mc.Federation.in_process(named, policy=FREE), controls=controls)
    assert abs(found.rate - d) <= 0.004
    assert found.n_buckets == 32 * 12_000
    assert (found.n_local, found.n_records, found.n_within) == (12_000, 12_000, 0)
    assert found.warnings == ()


@pytest.mark.slow
def test_masked_and_clear_sums_agree_within_the_interval():
    sites = people(3000, 600)
    true = 1 - 3000 / 3600
    for terms in ({"secure_sum": True, "strict": True}, {"secure_sum": False, "policy": FREE}):
        found = estimate_duplicate_rate(federation(sites, **terms), buckets_per_record=256)
        assert abs(found.rate - true) < 0.003
        assert found.interval[0] < found.rate < found.interval[1]
        assert found.n_shared == pytest.approx(600, abs=12)


def test_repeated_and_missing_records_are_told_apart():
    sites = {"lyon": table(["a1", "A-1", "a2", None, "unknown", *(f"p{i}" for i in range(60))]),
             "oslo": table([*(f"p{i}" for i in range(40, 100))])}  # fmt: skip
    found = estimate_duplicate_rate(mc.Federation.in_process(sites, secure_sum=True), buckets_per_record=512)
    assert (found.n_records, found.n_missing, found.n_within, found.n_local) == (125, 2, 1, 122)
    assert found.n_union == pytest.approx(102, abs=1.5)


def test_classes_of_the_outcome_have_rates_of_their_own():
    lyon = mc.data.TableData(np.zeros((200, 1)), np.arange(200) < 100, [f"p{i}" for i in range(200)])
    oslo = mc.data.TableData(np.zeros((200, 1)), np.arange(200) < 100, [f"p{i}" for i in range(100)] + [f"q{i}" for i in range(100)])  # fmt: skip  # noqa: E501
    found = estimate_duplicate_rate(
        mc.Federation.in_process({"lyon": lyon, "oslo": oslo}, secure_sum=True), by_outcome=True, buckets_per_record=512
    )
    frame = found.to_frame()
    assert frame.loc["class 1", "rate"] == pytest.approx(0.5, abs=0.02)
    assert frame.loc["class 0", "rate"] == pytest.approx(0.0, abs=0.02)
    assert frame.loc["all", "rate"] == pytest.approx(0.25, abs=0.02)
    [shown] = found.figures()
    assert read_figure(shown.to_dict()) == shown
    assert list(shown.rows) == ["all", "class 0", "class 1"]


def test_spelling_and_order_of_dates_do_not_matter():
    sites = {"lyon": table([f"{1 + i % 28:02d}/03/{1900 + i}" for i in range(1, 90)]),
             "oslo": table([f"{1900 + i}-03-{1 + i % 28:02d}" for i in range(1, 90)])}  # fmt: skip
    both = mc.Federation.in_process(sites, secure_sum=True)
    found = estimate_duplicate_rate(both, kind="date", date_order={"lyon": "dmy"}, buckets_per_record=512)
    assert found.rate == pytest.approx(0.5, abs=0.02)
    with pytest.raises(ConfigurationError, match="nice"):
        estimate_duplicate_rate(both, date_order={"nice": "dmy"})


def test_pseudonyms_of_each_sites_own_do_not_read_as_no_duplicates():
    shared = [f"p{i}" for i in range(80)]
    own = {name: table([f"{name}{one}" for one in shared]) for name in ("lyon", "oslo")}
    with pytest.warns(UserWarning, match="cannot be distinguished from identifiers that differ") as warned:
        found = estimate_duplicate_rate(mc.Federation.in_process(own, secure_sum=True))
    assert found.warnings == (UNPROVEN,)
    assert warned[0].filename == __file__
    registered = {name: table([f"{name}{one}" for one in [*shared, "TESTPATIENT1"]]) for name in own}
    with pytest.raises(ConfigurationError, match="TESTPATIENT1 at 0"):
        estimate_duplicate_rate(mc.Federation.in_process(registered, secure_sum=True), controls=["TESTPATIENT1"])


def test_controls_are_found_and_left_out_of_the_counts():
    sites = {name: table([f"{name}{i}" for i in range(80)] + ["TESTPATIENT1", "test-patient 2"]) for name in "abc"}
    found = estimate_duplicate_rate(
        mc.Federation.in_process(sites, secure_sum=True), controls=["TESTPATIENT1", "TESTPATIENT2"]
    )
    assert found.controls == {"TESTPATIENT1": 3, "TESTPATIENT2": 3}
    assert (found.n_records, found.n_local, found.rate) == (240, 240, pytest.approx(0, abs=0.02))
    assert "2 controls at all sites" in repr(found)


def test_different_keys_are_an_error_that_names_the_sites():
    keys = {"site-0": PseudonymKey.generate(), "site-1": (shared := PseudonymKey.generate()), "site-2": shared}
    with pytest.raises(ConfigurationError, match=r"^site-0: all sites must have the same key of pseudonyms"):
        estimate_duplicate_rate(federation(people(90, 9, 3), pseudonym_key=keys))


def test_the_fingerprint_is_that_of_the_key():
    key = PseudonymKey.generate()
    found = estimate_duplicate_rate(federation(people(90, 30, 3), pseudonym_key=key, study="hips"))
    assert found.fingerprint == key.fingerprint("hips")


def test_sums_in_clear_are_refused_under_a_minimum_of_patients():
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        estimate_duplicate_rate(federation(people(300, 30, 3), secure_sum=False))


def test_a_lost_site_is_an_error():
    lossy = federation(people(300, 30, 3), quorum=2, faults=Faults(lose={"site-2": "mark"}))
    with pytest.raises(QuorumLost, match="all sites of the first count must participate until the end"):
        estimate_duplicate_rate(lossy)


def test_columns_that_a_site_lacks_and_identifiers_that_nobody_has():
    with pytest.raises(DataError, match="person_key must be one of identifier; got 'passport'"):
        estimate_duplicate_rate(federation(people(90, 9, 3)), person_key="passport")
    empty = {name: table([None] * 40) for name in ("lyon", "oslo")}
    with pytest.raises(DataError, match="must have identifiers; got 0 of 2 sites"):
        estimate_duplicate_rate(mc.Federation.in_process(empty, secure_sum=True))


@pytest.mark.parametrize("per_record", [0, 1.5, 5000])
def test_unfit_numbers_of_buckets(per_record):
    with pytest.raises(ConfigurationError, match="buckets_per_record must be an integer from 1 to 4096"):
        estimate_duplicate_rate(federation(people(90, 9, 3)), buckets_per_record=per_record)


def test_a_resumed_run_finds_the_same_and_asks_nothing(tmp_path):
    sites = people(300, 60, 3)
    first = estimate_duplicate_rate(federation(sites, folder=tmp_path))
    again = federation(sites, folder=tmp_path)
    assert estimate_duplicate_rate(again) == first
    assert not again.traffic.calls


def test_policies_that_allow_masked_sums_alone_are_served_and_budgets_are_not(tmp_path):
    sites = people(300, 60, 3)
    strict = mc.Policy(secure_sums_only=True, methods=("duplicate-rate",))
    assert estimate_duplicate_rate(federation(sites, policy=strict)).n_local == 360
    budget = mc.Policy(epsilon=1.0, account=str(tmp_path / "account.jsonl"))
    with pytest.raises(RefusedByPolicy, match="epsilon"):
        estimate_duplicate_rate(federation(sites, policy=budget))


def test_the_card_tells_what_leaves():
    card = str(mc.Federation.in_process({"lyon": table(["a"])}).card(DuplicatesPart))
    assert "mark of each bucket" in card
