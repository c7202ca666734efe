"""A budget is spent before what it pays for leaves, survives, and refuses what does not fit."""

import contextlib
import multiprocessing
import os
import signal
import stat

import pytest

from multicentre.core.noise_plan import Noise
from multicentre.core.storage import held
from multicentre.errors import ConfigurationError, IntegrityError, RefusedByPolicy
from multicentre.privacy.accountant import Spent, cost_of
from multicentre.privacy.budget import Account, total_spent
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.privacy.ledger import read_ledger, repair_ledger, verify_ledger

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
    with pytest.raises(RefusedByPolicy, match="releases must fit the remaining part of the budget of epsilon 1"):
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


@pytest.mark.slow
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
    with pytest.raises(
        RefusedByPolicy, match="releases must fit the remaining part of the budget of epsilon 1"
    ) as refusal:
        account.check(cost)
    factor = float(refusal.value.hint.split("at least ")[1].split(" times")[0])
    account.check(Spent(cost.rho / (factor * 1.001) ** 2))
    with pytest.raises(RefusedByPolicy):
        account.check(Spent(cost.rho / (factor * 0.99) ** 2))
    epsilon = float(refusal.value.hint.split("epsilon ")[1].split(";")[0])
    account.check(Spent(rho_of_epsilon(epsilon, DELTA)))


@pytest.mark.parametrize("edit", [(b"0.02", b"0.01"), (b'"rho":0.02,', b"")])
def test_an_edited_account_is_refused(tmp_path, edit):
    path = tmp_path / "a.jsonl"
    Account(1.0, DELTA, path).charge(Spent(0.02), FACTS)
    path.write_bytes(path.read_bytes().replace(*edit))
    with pytest.raises(IntegrityError, match="entry 1"):
        Account(1.0, DELTA, path)


def test_an_amount_that_is_none_is_refused():
    with pytest.raises(IntegrityError, match=r"entry 3 must contain a cost \(rho\) of at least 0"):
        total_spent([{"event": "spend", "entry": 3, "rho": -1.0}])


def test_entries_removed_from_the_end_show(tmp_path):
    path = tmp_path / "a.jsonl"
    for _ in range(2):
        Account(1.0, DELTA, path).charge(Spent(0.01), FACTS)
    whole = path.read_bytes()
    for kept in (whole.splitlines(keepends=True)[0], b""):
        path.write_bytes(kept)
        with pytest.raises(IntegrityError, match=r"the account must contain the entry that its \.head file names"):
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
        repair_ledger(path)
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


# The head beside an account


def charged(path, *costs):
    for cost in costs:
        Account(1.0, DELTA, path).charge(cost, FACTS)


def head_of(path):
    return path.with_name(f"{path.name}.head")


REMOVED = "the account must contain the entry that its .head file names; entries or the file were removed"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"null",
        b"\xff\xfe",
        b'{"entries": 1}',
        b'{"hash": "x"}',
        b'{"entries": 0, "hash": "x"}',
        b'{"entries": "1", "hash": "x"}',
        b'{"entries": -1, "hash": "x"}',
    ],
)
def test_a_head_that_cannot_be_read_stops_the_account(tmp_path, content):
    path = tmp_path / "a.jsonl"
    charged(path, Spent(0.01))
    head_of(path).write_bytes(content)
    with pytest.raises(IntegrityError) as caught:
        Account(1.0, DELTA, path)
    assert (caught.value.what, caught.value.where) == (REMOVED, str(path.resolve()))
    assert caught.value.hint == ("Restore the account and its .head file from a copy. Costs are not refunded.")


def test_an_account_that_was_written_again_with_smaller_amounts_is_refused(tmp_path):
    dear, cheap = tmp_path / "dear.jsonl", tmp_path / "cheap.jsonl"
    charged(dear, Spent(0.01), Spent(0.01))
    charged(cheap, Spent(0.001), Spent(0.001))
    dear.write_bytes(cheap.read_bytes())  # an intact chain of as many entries
    with pytest.raises(IntegrityError, match=r"the account must contain the entry that its \.head file names"):
        Account(1.0, DELTA, dear)


def test_an_account_is_refused_when_it_is_removed_while_it_is_open(tmp_path):
    path = tmp_path / "a.jsonl"
    charged(path, Spent(0.01))
    account = Account(1.0, DELTA, path)
    path.unlink()
    with pytest.raises(IntegrityError, match="removed"):
        account.charge(Spent(0.01), FACTS)
    assert not path.exists()


def test_a_spending_is_on_the_disk_before_what_it_pays_for_leaves(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    charged(path, Spent(0.001))
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    charged(path, Spent(0.001))
    assert synced[0] == path.stat().st_ino


def test_an_account_stands_in_a_folder_that_is_made_for_it(tmp_path):
    path = tmp_path / "deep" / "er" / "a.jsonl"
    charged(path, Spent(0.01))
    assert {one.name for one in path.parent.iterdir()} == {"a.jsonl", "a.jsonl.head", "a.jsonl.lock"}


def test_an_account_in_use_is_waited_for_and_then_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    charged(path, Spent(0.001))
    monkeypatch.setattr("multicentre.privacy.budget._PATIENCE_S", 0.05)
    with held(path.with_name("a.jsonl.lock")), pytest.raises(ConfigurationError, match="another process is at work"):
        charged(path, Spent(0.001))
    charged(path, Spent(0.001))


def test_an_account_that_cannot_be_written_says_that_nothing_was_released(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises((IntegrityError, ConfigurationError)) as caught:
        charged(tmp_path / "file" / "a.jsonl", Spent(0.01))
    assert caught.value.where == str((tmp_path / "file" / "a.jsonl").resolve())
    assert caught.value.what.startswith("the account cannot be written (")
    assert caught.value.what.endswith("); nothing was released")


def test_a_path_that_no_system_holds_is_refused_by_its_key(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        Account(1.0, DELTA, tmp_path / "a\0b")
    assert caught.value.where == "policy, account"
    assert caught.value.what == "account must be a valid path of a file; got an invalid one"
    assert caught.value.hint == "Name a file in a folder of the site."


# What an entry says


def test_every_law_is_paid_from_its_own_entry(tmp_path):
    path = tmp_path / "a.jsonl"
    spent = (Spent(0.001), Spent(0.002, gaussian=False), Spent(0.003, gaussian=False, pure=0.077))
    charged(path, *spent)
    entries = Account(1.0, DELTA, path).entries()
    assert [(entry["rho"], entry["gaussian"], entry["pure"]) for entry in entries] == [
        (0.001, True, None),
        (0.002, False, None),
        (0.003, False, 0.077),
    ]
    assert {(entry["event"], entry["unit"], entry["step"]) for entry in entries} == {("spend", "patient", "x")}
    assert [total_spent([entry]) for entry in entries] == list(spent)
    assert total_spent(entries) == spent[0] + spent[1] + spent[2]


def test_laplace_noise_stays_cheap_for_the_next_run(tmp_path):
    path = tmp_path / "a.jsonl"
    half = cost_of(Noise("laplace", {"a": 2.0}))
    charged(path, half, half)  # epsilon 0.5 each; by zCDP alone the second would not fit
    assert Account(1.0, DELTA, path).spent.epsilon(DELTA) == pytest.approx(1.0)


def entry_of(**facts):
    return {"event": "spend", "entry": 1, "rho": 0.1, "gaussian": True, "pure": None, **facts}


@pytest.mark.parametrize("rho", [None, 1, True, "0.1", -1e-300, float("nan")])
def test_an_entry_without_an_amount_is_refused(rho):
    with pytest.raises(IntegrityError, match=r"^account: entry 1 must contain a cost \(rho\) of at least 0"):
        total_spent([entry_of(rho=rho)])


def test_an_entry_of_nothing_spent_is_one():
    assert total_spent([entry_of(rho=0.0)]) == Spent()


@pytest.mark.parametrize("gaussian", [False, None, 1, "true"])
def test_noise_is_gaussian_where_the_entry_says_so_alone(gaussian):
    assert not total_spent([entry_of(gaussian=gaussian)]).gaussian
    assert total_spent([entry_of()]).gaussian


@pytest.mark.parametrize("pure", [None, -1.0, "0.1", 1, float("nan")])
def test_a_pure_epsilon_that_is_none_is_not_relied_on(pure):
    assert total_spent([entry_of(pure=pure)]).pure == float("inf")
    assert total_spent([entry_of(pure=0.5)]).pure == 0.5
    assert total_spent([entry_of(pure=0.0)]).pure == 0.0


def test_entries_that_spend_nothing_are_passed_over():
    assert total_spent([{"event": "repaired", "entry": 1, "rho": 9.0}, entry_of(entry=2)]) == Spent(0.1)


# What is left


def test_a_cost_of_the_whole_budget_fits_and_a_thousandth_more_does_not():
    rho = rho_of_epsilon(1.0, DELTA)
    Account(1.0, DELTA).check(Spent(rho))
    Account(1.0, DELTA).check(Spent(rho * (1 + 1e-10)))  # the arithmetic of the last digits
    with pytest.raises(RefusedByPolicy):
        Account(1.0, DELTA).check(Spent(rho * 1.001))
    with pytest.raises(RefusedByPolicy):
        Account(1.0, DELTA).check(Spent(rho * (1 + 1e-6)))


def test_what_is_left_is_the_largest_plan_that_fits():
    account = Account(1.0, DELTA)
    assert account.left() == pytest.approx(1.0)
    account.charge(Spent(0.02), FACTS)
    left = account.left()
    assert 0.3 < left < 0.9
    account.check(Spent(rho_of_epsilon(left * (1 - 1e-9), DELTA)))
    with pytest.raises(RefusedByPolicy):
        account.check(Spent(rho_of_epsilon(left * 1.001, DELTA)))
    account.charge(Spent(rho_of_epsilon(left * (1 - 1e-9), DELTA)), FACTS)
    assert account.left() < 0.01


def test_nothing_is_left_of_a_budget_that_was_spent():
    account = Account(1.0, DELTA)
    account.charge(Spent(rho_of_epsilon(1.0, DELTA) * (1 + 1e-10)), FACTS)
    assert account.left() == 0.0
    with pytest.raises(RefusedByPolicy) as caught:
        account.check(Spent(0.01))
    assert caught.value.hint == "The budget is exhausted. Ask the site's steward."
    assert caught.value.where == "policy, epsilon"


def test_a_refusal_says_by_how_much_laplace_noise_has_to_grow():
    account = Account(1.0, DELTA)
    account.charge(cost_of(Noise("laplace", {"a": 2.0})), FACTS)
    dear = Noise("laplace", {"a": 0.5})
    with pytest.raises(RefusedByPolicy) as caught:
        account.check(cost_of(dear))
    # 0.5 of pure epsilon is left, and the plan costs 2: four times the noise.
    assert caught.value.hint.startswith("The same releases fit with at least 4 times the noise, a plan of")
    account.check(cost_of(Noise("laplace", {"a": 0.5 * 4.001})))
    assert "releases of epsilon 2 at delta 1e-05 (unit: one patient, all records;" in caught.value.what


def test_an_account_that_is_forgotten_keeps_its_entries_meanwhile():
    account = Account(1.0, DELTA)
    account.charge(Spent(0.01), FACTS)
    (entry,) = account.entries()
    assert FACTS.items() <= entry.items()
    assert Account(1.0, DELTA).spent == Spent()


def test_costs_of_gaussian_noise_have_no_pure_epsilon():
    cost = cost_of(Noise("gaussian", {"a": 2.0, "b": 4.0}), 3)
    assert (cost.gaussian, cost.pure) == (True, float("inf"))
    assert cost_of(Noise("laplace", {"a": 2.0, "b": 4.0}), 3) == Spent(3 * (1 / 8 + 1 / 32), False, 3 * 0.75)
    assert cost_of(Noise("gaussian", {"a": 2.0})) == cost_of(Noise("gaussian", {"a": 2.0}), 1)
