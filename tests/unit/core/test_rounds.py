"""A run that is broken off anywhere and taken up again gives bit for bit what it would have given."""

import numpy as np
import pytest

from multicentre.core.rounds import Listener
from multicentre.core.storage import Store, write_atomically
from multicentre.engines.faults import Faults
from multicentre.errors import IntegrityError, QuorumLost
from support.toy_method import FedMean, Guess, MeanSite, federate, toy_sites

N_ROUNDS = 4
EXCHANGES = {False: 1 + N_ROUNDS, True: 1 + 2 + N_ROUNDS}


def fit(folder=None, sites=None, n_rounds=N_ROUNDS, on_round=None, **options):
    with federate(sites, folder=folder, **options) as federation:
        return FedMean(n_rounds, on_round).fit(federation)


def assert_same(one, other):
    assert one.mean_.tobytes() == other.mean_.tobytes()
    assert one.history_ == other.history_


@pytest.mark.parametrize(("secure", "at"), [(secure, at) for secure, n in EXCHANGES.items() for at in range(n)])
def test_an_interrupted_run_resumes_bit_for_bit(tmp_path, secure, at):
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, secure_sum=secure, faults=Faults(interrupt_at=at))
    assert_same(fit(tmp_path, secure_sum=secure), fit(secure_sum=secure))


def test_a_run_that_breaks_at_every_round_still_ends(tmp_path):
    for _ in range(N_ROUNDS):
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path, faults=Faults(interrupt_at=1))
    assert_same(fit(tmp_path), fit())


@pytest.mark.parametrize("number", range(N_ROUNDS + 1))
def test_a_crash_between_the_sites_write_and_the_coordinators_is_harmless(tmp_path, monkeypatch, number):
    keep = Store.keep

    def crash(store, name, kept, state):
        if store._folder.name == "checkpoints" and kept == number:
            raise KeyboardInterrupt
        keep(store, name, kept, state)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "keep", crash)
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path)
    assert_same(fit(tmp_path), fit())


def test_a_finished_run_does_not_iterate_again(tmp_path):
    first, again = fit(tmp_path), []
    second = fit(tmp_path, on_round=again.append)
    assert again == []
    assert_same(first, second)


def test_more_rounds_go_on_from_the_last(tmp_path):
    fit(tmp_path, n_rounds=2)
    assert_same(fit(tmp_path), fit())


def test_a_stopped_run_stays_stopped(tmp_path):
    def run():
        with federate(folder=tmp_path) as federation:
            rounds = federation.begin(MeanSite).rounds(9, Guess, lambda: Guess(np.zeros(3), 0))
            for number in rounds:
                if number == 2:
                    rounds.stop()
            return rounds

    assert run().number == 2
    again = run()
    assert (again.number, again.stopped, len(again.history)) == (2, True, 2)


def test_a_site_that_was_lost_stays_out_when_the_run_resumes(tmp_path):
    options = {"quorum": 2, "secure_sum": False}
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, **options, faults=Faults(lose={"site-1": 2}, interrupt_at=4))
    assert_same(fit(tmp_path, **options), fit(**options, faults=Faults(lose={"site-1": 2})))


def test_a_run_cannot_be_taken_up_without_its_sites(tmp_path):
    fit(tmp_path, n_rounds=2)
    two = {name: rows for name, rows in toy_sites().items() if name != "site-1"}
    with pytest.raises(QuorumLost, match=r"^site-1: .*it had more sites"):
        fit(tmp_path, two)


@pytest.mark.parametrize("which", ["checkpoints/*4.state", "sites/site-1/state/*4.state"])
def test_one_changed_byte_of_a_checkpoint_is_detected(tmp_path, which):
    fit(tmp_path)
    (path,) = tmp_path.glob(which)
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(IntegrityError, match=path.name):
            fit(tmp_path)
    path.write_bytes(content[:10])
    with pytest.raises(IntegrityError):
        fit(tmp_path)


def test_a_site_whose_state_is_gone_is_not_started_anew_in_silence(tmp_path):
    fit(tmp_path, n_rounds=2)
    (path,) = tmp_path.glob("sites/site-1/state/*2.state")
    path.unlink()
    with pytest.raises(IntegrityError, match="after round 2 must be in the folder; it is not there"):
        fit(tmp_path)


def test_states_are_for_their_owner_only_and_two_are_kept(tmp_path):
    fit(tmp_path)
    kept = sorted(tmp_path.glob("sites/site-1/state/*"))
    assert [path.name[-12:-6] for path in kept] == ["000003", "000004"]
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.json"
    write_atomically(path, b"old")

    def full(handle):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_strange_files_beside_the_states_are_passed_over(tmp_path):
    store = Store(tmp_path)
    store.keep("0.1-rounds", 3, b"state")
    (tmp_path / "0_1-rounds.copy.state").write_bytes(b"")
    assert store.numbers("0.1-rounds") == [3]
    assert store.read("0.1-rounds", 3) == b"state"
    with pytest.raises(IntegrityError, match="is not there"):
        store.read("0.1-rounds", 4)


def test_the_listener_hears_what_was_restored(tmp_path):
    heard = []

    class Ear(Listener):
        def rounds_began(self, name, n_rounds, done):
            heard.append(("began", n_rounds, done))

        def round_ended(self, name, number, metrics):
            heard.append((number, sorted(metrics)))

        def rounds_ended(self, name, number):
            heard.append(("ended", number))

    fit(tmp_path, n_rounds=3)
    fit(tmp_path, listener=Ear())
    assert heard == [("began", 4, 3), (4, ["calls", "step"]), ("ended", 4)]
