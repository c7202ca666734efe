"""A budget is spent before what it pays for leaves, survives, and refuses what does not fit."""

import contextlib
import multiprocessing
import os
import signal
import stat

import pytest

from multicentre.federation.errors import ConfigurationError, IntegrityError, RefusedByPolicy
from multicentre.federation.noise import Noise
from multicentre.privacy.accounting import Spent, rho_of_epsilon
from multicentre.privacy.budget import Account, cost_of, total_spent
from multicentre.privacy.ledger import mend_ledger, read_ledger, verify_ledger

DELTA = 1e-5
FACTS = {"study": "s", "session": "0.1", "call": 1, "method": "m", "step": "x"}


def test_costs_add_over_fields_and_times():
    assert cost_of(Noise("gaussian", {"a": 2.0, "b": 4.0}), times=3).rho == pytest.approx(3 * (1 / 8 + 1 / 32))
    assert cost_of(Noise("laplace", {"a": 2.0})) == Spent(1 / 8, gaussian=False, pure=0.5)


def test_laplace_noise_alone_costs_its_pure_epsilon():
    half = cost_of(Noise("laplace", {"a": 2.0}))
    assert (half + half + Spent()).epsilon(DELTA) == pytest.approx(1.0)
    assert (half + Spent(0.1)).pure == float("inf")
    account = Account(1.0, DELTA)
    for _ in range(2):
        account.charge(half, FACTS)
    with pytest.raises(RefusedByPolicy):
        account.check(cost_of(Noise("laplace", {"a": 20.0})))


def test_spending_adds_up_to_the_limit_and_no_further(tmp_path):
    rho = rho_of_epsilon(1.0, DELTA)
    account = Account(1.0, DELTA, tmp_path / "a.jsonl")
    for _ in range(4):
        account.charge(Spent(rho / 4), FACTS)
    assert account.spent.rho == pytest.approx(rho)
    with pytest.raises(RefusedByPolicy, match="Nothing is left of the budget"):
        account.charge(Spent(rho / 1e6), FACTS)
    assert total_spent(read_ledger(tmp_path / "a.jsonl")).rho == pytest.approx(rho)


def test_what_was_spent_is_still_spent_for_the_next_run(tmp_path):
    path = tmp_path / "site" / "a.jsonl"
    Account(1.0, DELTA, path).charge(Spent(0.02), FACTS)
    again = Account(1.0, DELTA, path)
    assert again.spent == Spent(0.02)
    again.charge(Spent(0.01), FACTS)
    assert verify_ledger(path).entries == 2


def test_a_second_federation_sees_what_the_first_spends_meanwhile(tmp_path):
    one, two = (Account(1.0, DELTA, tmp_path / "a.jsonl") for _ in range(2))
    one.charge(Spent(0.03), FACTS)
    assert two.spent == Spent(0.0)
    with pytest.raises(RefusedByPolicy):
        two.charge(Spent(0.03), FACTS)
    assert two.spent.rho == 0.03


def spend(path):
    account = Account(1.0, DELTA, path)
    try:
        account.charge(Spent(0.01), FACTS)
    except RefusedByPolicy:
        return 0
    return 1


def test_processes_that_spend_at_once_never_overspend(tmp_path):
    path = tmp_path / "a.jsonl"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        granted = sum(pool.map(spend, [path] * 6))
    assert granted == int(rho_of_epsilon(1.0, DELTA) / 0.01) == 3
    assert verify_ledger(path).entries == granted


def test_the_refusal_names_what_would_fit():
    account = Account(1.0, DELTA)
    account.charge(Spent(0.01), FACTS)
    cost = Spent(0.08)
    with pytest.raises(RefusedByPolicy, match=r"one patient.*the budget of 1\b") as refusal:
        account.check(cost)
    factor = float(refusal.value.mend.split("at least ")[1].split(" times")[0])
    account.check(Spent(cost.rho / (factor * 1.001) ** 2))
    with pytest.raises(RefusedByPolicy):
        account.check(Spent(cost.rho / (factor * 0.99) ** 2))
    epsilon = float(refusal.value.mend.split("epsilon ")[1].split(";")[0])
    account.check(Spent(rho_of_epsilon(epsilon, DELTA)))


@pytest.mark.parametrize("edit", [(b"0.02", b"0.01"), (b'"rho":0.02,', b"")])
def test_an_edited_account_is_refused(tmp_path, edit):
    path = tmp_path / "a.jsonl"
    Account(1.0, DELTA, path).charge(Spent(0.02), FACTS)
    path.write_bytes(path.read_bytes().replace(*edit))
    with pytest.raises(IntegrityError, match="entry 1"):
        Account(1.0, DELTA, path)


def test_an_amount_that_is_none_is_refused():
    with pytest.raises(IntegrityError, match="what was spent"):
        total_spent([{"event": "spend", "entry": 3, "rho": -1.0}])


def test_entries_removed_from_the_end_show(tmp_path):
    path = tmp_path / "a.jsonl"
    for _ in range(2):
        Account(1.0, DELTA, path).charge(Spent(0.01), FACTS)
    whole = path.read_bytes()
    for kept in (whole.splitlines(keepends=True)[0], b""):
        path.write_bytes(kept)
        with pytest.raises(IntegrityError, match="removed from the account's end"):
            Account(1.0, DELTA, path)
    path.unlink()
    with pytest.raises(IntegrityError, match="removed"):
        Account(1.0, DELTA, path)
    path.write_bytes(whole)
    assert Account(1.0, DELTA, path).spent.rho == 0.02


def test_a_crash_before_the_head_is_written_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    Account(1.0, DELTA, path).charge(Spent(0.01), FACTS)

    def crash(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("multicentre.privacy.budget.write_atomically", crash)
    with pytest.raises(KeyboardInterrupt):
        Account(1.0, DELTA, path).charge(Spent(0.01), FACTS)
    monkeypatch.undo()
    account = Account(1.0, DELTA, path)
    assert account.spent.rho == 0.02
    account.charge(Spent(0.005), FACTS)


@pytest.mark.skipif(os.name != "posix", reason="file sizes are limited by a POSIX call")
def test_a_full_disk_stops_the_release_and_leaves_what_was_spent(tmp_path):
    import resource

    path = tmp_path / "a.jsonl"
    account = Account(1.0, DELTA, path)
    account.charge(Spent(0.01), FACTS)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, hard))
    try:
        with pytest.raises((IntegrityError, ConfigurationError)):
            account.charge(Spent(0.01), FACTS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, handler)
    with contextlib.suppress(IntegrityError):
        mend_ledger(path)
    assert Account(1.0, DELTA, path).spent.rho == pytest.approx(0.01)


@pytest.mark.parametrize("name", ["a\0b", "x" * 400])
def test_a_path_that_cannot_be_is_an_error(name, tmp_path):
    with pytest.raises((ConfigurationError, IntegrityError)):
        Account(1.0, DELTA, tmp_path / name).charge(Spent(0.01), FACTS)


def test_the_account_is_for_its_owner(tmp_path):
    Account(1.0, DELTA, tmp_path / "a.jsonl").charge(Spent(0.01), FACTS)
    if os.name == "posix":
        modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.jsonl", "a.jsonl.head")}
        assert set(modes.values()) == {0o600}


def test_nothing_is_written_when_it_does_not_fit(tmp_path):
    account = Account(0.5, DELTA, tmp_path / "a.jsonl")
    with pytest.raises(RefusedByPolicy):
        account.charge(Spent(1.0), FACTS)
    assert total_spent(read_ledger(tmp_path / "a.jsonl") if (tmp_path / "a.jsonl").exists() else []) == Spent()
