"""A coordinator that writes letters of its own, a site that writes replies of its own, a thief of a site's folder."""

import dataclasses
import json
import logging
import re

import numpy as np
import pytest

import multicentre as mc
from multicentre.cli.console import harmless
from multicentre.core.calls import Call, Selection, StateCommand, encode_call
from multicentre.core.messages import Nothing, count
from multicentre.core.site_runtime import SiteRuntime
from multicentre.core.steps import Acknowledgement, Release, SitePart, step
from multicentre.engines.remote import engine, request_handler
from multicentre.engines.remote.opening import Opening
from multicentre.engines.remote.packing import MAX_TEXT, Reply, Request, pack_command, pack_error, unpack_error
from multicentre.errors import (
    ConfigurationError,
    DataError,
    IntegrityError,
    MessageError,
    MulticentreError,
    QuorumLost,
    RefusedByPolicy,
)
from multicentre.estimator.registry import METHODS
from multicentre.privacy.encrypted_store import EncryptedStore
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger, read_ledger
from multicentre.privacy.policy import Policy
from multicentre.privacy.secret_files import Secret
from multicentre.studies.site_descriptions import check_descriptions
from multicentre.studies.study_file import read_study
from multicentre.studies.terms import digest_of, study_protocol
from multicentre_sites.deployment.approvals import revoke
from multicentre_sites.deployment.site_folder import read_site
from support.real_sites import NAMES, Hospitals, approve_at
from support.remote_sites import ByHand
from support.studies_toy import STUDY, TOY, Calls, FedViewMeans, Guess, ViewMeansSite, write_study

RUN = "a1"
UNMASKED = STUDY + "\n[privacy]\nsecure_sum = false\n"


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)
    monkeypatch.setattr(engine, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(engine, "_CLOSING_S", 0.1)


@pytest.fixture
def hospitals(tmp_path):
    return Hospitals(tmp_path / "sites", write_study(tmp_path, UNMASKED))


class Cheat:
    """Writes letters to one site, by hand."""

    def __init__(self, hospitals, site="lyon", run=RUN):
        self.hospitals, self.site, self.run, self.number = hospitals, site, run, 0
        self.study = read_study(hospitals.study_path)

    def write(self, kind, body=b"", errands=(), *, attempt=0, number=None):
        self.number = self.number + 1 if number is None else number
        errands = tuple(one if isinstance(one, dict) else pack_command(one) for one in errands)
        letter = Request(kind, self.run, attempt, self.number, errands, body)
        return Reply.unpack(self.hospitals.answer(self.site, letter.pack()))

    def open(self, **more):
        opening = Opening(self.run, 0, self.study.name, digest_of(self.study), NAMES, False)
        return self.write("open", opening.pack(), **more)

    def call(self, session="0.1", errands=(), **more):
        request = Guess({view: np.zeros(2) for view in ("a", "b")})
        call = Call(self.study.name, session, 0, ViewMeansSite.residuals, request, NAMES)
        return self.write("call", encode_call(call), errands, **more)

    @property
    def entries(self):
        return list(read_ledger(read_site(self.hospitals.root / self.site).ledger_of(self.study.name)))


@pytest.fixture
def cheat(hospitals):
    writer = Cheat(hospitals)
    assert writer.open().kind == "opened"
    return writer


def kept(action, name="x", number=1, session="0.1", selection=None):
    return StateCommand(action, session, ViewMeansSite, name, number, selection)


def error_in(reply):
    assert reply.kind == "refused"
    return unpack_error(reply)


class Halves(SitePart):
    """Divides records in two."""

    method = "toy-halves"
    holds = np.ndarray
    remembers = Calls

    @property
    def folds(self):
        return None if self.state is None else np.arange(len(self.data)) % 2

    @step(releases=Acknowledgement)
    def divide(self, request: Nothing) -> Acknowledgement:
        """Divide; nothing leaves."""
        self.state = Calls(1)
        return Acknowledgement()


def test_errands_choose_no_records_past_the_guard_and_give_no_state_to_other_records(tmp_path):
    """An errand passes no guard and stands in no ledger: it must not tell which folds hold somebody."""
    ledger = Ledger()
    store = EncryptedStore(tmp_path, Secret(bytes(32)))
    site = SiteRuntime("lyon", np.zeros((20, 2)), Guard(Policy(), ledger), store=store)
    call = Call("study", "0.1", 0, Halves.divide, Nothing(), ("lyon",))
    site.answer(call)
    site.run_command(StateCommand("keep", "0.1", Halves, "whole", 1))
    entries = len(ledger.entries)
    for fold in (0, 1, 2):
        part = Selection("0.1", (fold,))
        site.run_command(StateCommand("keep", "0.2", Halves, "part", fold, part))
        site.run_command(StateCommand("restore", "0.2", Halves, "part", fold, part))
        with pytest.raises(IntegrityError, match="belongs to a different set of records"):
            site.run_command(StateCommand("restore", f"0.3{fold}", Halves, "whole", 1, part))
    assert len(ledger.entries) == entries
    site.answer(dataclasses.replace(call, session="0.4", selection=Selection("0.1", (1,))))
    site.run_command(StateCommand("keep", "0.4", Halves, "half", 1))
    site.run_command(StateCommand("restore", "0.5", Halves, "half", 1, Selection("0.1", (1,))))


def test_calls_that_the_policy_refuses_do_not_tell_which_folds_hold_records():
    @dataclasses.dataclass(frozen=True)
    class Size(Release):
        n: int = count("records")

    class Unlisted(SitePart):
        method = "toy-unlisted"

        @step(releases=Size)
        def size(self, request: Nothing) -> Size:
            """Count the records."""
            return Size(len(self.data), patients=len(self.data))

    site = SiteRuntime("lyon", np.zeros((20, 2)), Guard(Policy(methods=("toy-halves",)), Ledger()))
    call = Call("study", "0.1", 0, Halves.divide, Nothing(), ("lyon",))
    site.answer(call)
    errors = [
        site.answer(
            dataclasses.replace(call, session=f"0.2{fold}", step=Unlisted.size, selection=Selection("0.1", (fold,)))
        ).error
        for fold in (0, 2)
    ]
    assert isinstance(errors[0], RefusedByPolicy)
    assert str(errors[0]) == str(errors[1])


def test_errands_reach_no_replies_that_are_kept(cheat):
    first = cheat.call()
    n_entries, number = len(cheat.entries), cheat.number
    cheat.call(errands=[kept("keep", "reply-0", n) for n in (number, 90, 91, 92)])
    assert error_in(cheat.write("restore", errands=[kept("restore", "reply-0", number)])).code == "MC803"
    again = cheat.call(number=cheat.number - 1, errands=[kept("keep", "reply-0", n) for n in (number, 90, 91, 92)])
    assert (first.kind, again.kind) == ("answer", "answer")
    assert len(cheat.entries) == n_entries + 1


@pytest.mark.parametrize("number", [-1, -(10**400), True, 1.0])
def test_states_have_whole_numbers(cheat, number):
    told = {**pack_command(kept("keep")), "number": number}
    assert "command must have the fields" in error_in(cheat.call(errands=[told])).what


def test_a_state_of_another_run_is_refused(hospitals, cheat):
    """Who can write to a site's folder, and lacks its key, gives one run what another remembers."""
    cheat.call()
    cheat.call(errands=[kept("keep", "rounds", 1)])
    other = Cheat(hospitals, run="b2")
    other.open()
    other.write("restore", errands=[kept("keep", "rounds", 1)])
    state = read_site(hospitals.root / "lyon").state
    (mine,), (theirs,) = ((state / run / "parts").glob("rounds.*") for run in (RUN, "b2"))
    theirs.write_bytes(mine.read_bytes())
    assert "cannot be decrypted" in error_in(other.write("restore", errands=[kept("restore", "rounds", 1)])).what


def test_where_files_lie_is_not_told(hospitals, cheat, caplog):
    cheat.call()
    cheat.call(errands=[kept("keep", "rounds", 1)])
    site = read_site(hospitals.root / "lyon")
    (path,) = (site.state / RUN / "parts").glob("rounds.*")
    path.write_bytes(bytes(100))
    changed = error_in(cheat.write("restore", errands=[kept("restore", "rounds", 1)]))
    (site.approved / "approvals.json").write_text("{")
    unread = error_in(cheat.call())
    for error in (changed, unread):
        assert str(hospitals.root) not in str(error)
        assert "a file of the site" in error.where
        assert error.where.startswith("lyon")
    with caplog.at_level(logging.WARNING):
        cheat.call()
    assert str(site.approved) in caplog.text


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("lyon, /srv/my data/x.csv, age", "lyon, a file of the site, age"),
        ("/srv/x.csv", "a file of the site"),
        ("views and/or columns, 3 / 4", "views and/or columns, 3 / 4"),
    ],
)
def test_paths_in_errors_are_recognised(where, told):
    assert unpack_error(pack_error(1, DataError("it is empty", where=where))).where == told


def test_an_open_run_ends_when_the_study_is_approved_again(hospitals, cheat):
    """Otherwise a run that began under older terms goes on beside one under the new ones."""
    assert cheat.call().kind == "answer"
    hospitals.study_path.write_text(hospitals.study_path.read_text() + "\n[run]\ntime_limit_s = 60\n")
    approve_at(hospitals.root / "lyon", hospitals.study_path)
    assert "were changed since" in error_in(cheat.call()).what
    newer = Cheat(hospitals, run="b2")
    assert newer.open().kind == "opened"
    assert newer.call().kind == "answer"
    assert "were changed since" in error_in(cheat.call()).what


def test_a_run_under_way_ends_when_the_roster_is_taken_back(tmp_path):
    """A steward who no longer trusts a key on it must not go on masking for that key."""
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path))
    with hospitals.federation() as federation:
        FedViewMeans(n_rounds=1).fit(federation)
        revoke(read_site(hospitals.root / "oslo").approved, "roster")
        with pytest.raises(RefusedByPolicy, match="the pinned roster must be") as raised:
            FedViewMeans(n_rounds=1).fit(federation)
    assert raised.value.where.startswith("oslo")


@pytest.mark.parametrize("session", ["0.1\x1b[2K", "x" * 300, "0.1\n0.2"])
def test_no_session_writes_into_the_stewards_terminal_or_fills_the_disk(cheat, session):
    cheat.call()
    before = cheat.entries
    assert error_in(cheat.call(session)).where == "lyon, wire"
    assert cheat.entries == before


def test_heads_that_would_take_all_memory_are_not_read(hospitals, cheat):
    bomb = b'{"commands": [' + b"{}," * 3 * 2**20 + b"{}]}\n"
    assert "must be a JSON object" in error_in(Reply.unpack(hospitals.answer("lyon", bomb))).what
    head = json.dumps({"peers": ["lyon"] * 2**18}).encode()
    assert error_in(cheat.write("call", head + b"\n")).where == "lyon, wire"


def test_an_answer_that_is_too_large_is_computed_and_written_down_once(cheat, monkeypatch):
    monkeypatch.setattr("multicentre.engines.remote.socket.MAX_MESSAGE_BYTES", 2000)
    real = request_handler.pack_outcome
    monkeypatch.setattr(
        request_handler, "pack_outcome", lambda *told: dataclasses.replace(real(*told), body=bytes(3000))
    )
    first, entries = cheat.call(), len(cheat.entries)
    again = cheat.call(number=cheat.number)
    assert error_in(first).what == error_in(again).what
    assert "a message must have at most" in error_in(first).what
    assert len(cheat.entries) == entries


class Liar(ByHand):
    """Carries letters to honest sites, and lets oslo say what it likes."""

    def __init__(self, hospitals, says):
        super().__init__({name: lambda letter, name=name: hospitals.answer(name, letter) for name in NAMES})
        honest = self.handles["oslo"]
        self.handles["oslo"] = lambda letter: says(Request.unpack(letter), honest(letter))


def federated(hospitals, says, **options):
    study = read_study(hospitals.study_path)
    told = {"study": study.name, "secure_sum": study.masked, "agreed": digest_of(study), "patience_s": 0.05, **options}
    return mc.Federation.over(Liar(hospitals, says), **told)


def test_a_site_blames_no_other_for_its_refusal(hospitals):
    blamed = DataError("the column is empty", where="lyon, a")

    def says(letter, honest):
        return pack_error(letter.number, blamed).pack() if letter.kind == "call" else honest

    with federated(hospitals, says) as federation, pytest.raises(DataError) as raised:
        FedViewMeans(n_rounds=1).fit(federation)
    assert raised.value.where == "oslo, lyon, a"


@pytest.mark.parametrize("number", [0, 99])
def test_an_answer_to_another_letter_is_no_answer_and_holds_up_nobody_for_good(hospitals, number):
    def says(letter, honest):
        return dataclasses.replace(Reply.unpack(honest), number=number).pack() if letter.kind == "call" else honest

    with federated(hospitals, says) as federation, pytest.raises(QuorumLost, match="oslo"):
        FedViewMeans(n_rounds=1).fit(federation)


def test_what_a_site_says_of_its_process_moves_no_cursor_and_breaks_nothing(hospitals):
    for body in (b'{"since": "\\u001b[2Know"}', b"no JSON", b'{"since": ["x"]}'):

        def says(letter, honest, body=body):
            return Reply(letter.number, "closed", body).pack() if letter.kind == "call" else honest

        with federated(hospitals, says) as federation, pytest.raises(MulticentreError) as raised:
            FedViewMeans(n_rounds=1).fit(federation)
        assert "oslo" in str(raised.value)
        assert str(raised.value).isprintable()


@pytest.mark.parametrize("reply", [Reply(0, "opened", b"no JSON"), Reply(0, "done"), Reply(0, "answer", b"{}")])
def test_an_opening_that_is_answered_by_something_else_names_the_site(hospitals, reply):
    with pytest.raises(MessageError) as raised:
        federated(hospitals, lambda letter, honest: dataclasses.replace(reply, number=letter.number).pack())
    assert raised.value.where.startswith("oslo")


def test_a_site_that_comes_back_with_other_data_ends_the_run(hospitals):
    """Its files changed while its process was begun anew: the next fit of the run would mix two data sets."""
    with hospitals.federation() as federation:
        FedViewMeans(n_rounds=1).fit(federation)
        path = hospitals.study_path.parent / "site-1" / "a.csv"
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines[:-1], re.sub(r",[^,]+,", ",1.5,", lines[-1], count=1)]) + "\n")
        del hospitals.handlers["oslo"]
        with pytest.raises(IntegrityError, match="as at the start of the run") as raised:
            FedViewMeans(n_rounds=1).fit(federation)
    assert raised.value.where == "oslo"


@pytest.mark.parametrize("facts", [{"schema": 3}, {"data": 1}, {"version": {}}])
def test_what_a_site_tells_of_itself_is_of_the_declared_kind(hospitals, facts):
    with pytest.raises(MessageError) as raised:
        check_descriptions(read_study(hospitals.study_path), {"oslo": facts})
    assert raised.value.where == "oslo"


def test_a_coordinator_whose_steps_differ_is_refused_by_name(hospitals):
    there = {**study_protocol(read_study(hospitals.study_path)), ViewMeansSite.method: "0123456789abcdef"}
    with pytest.raises(RefusedByPolicy, match=rf"{ViewMeansSite.method} \(.* and 0123456789abcdef\)"):
        hospitals.federation(protocol=there)


def test_a_site_whose_steps_changed_since_the_approval_refuses_and_is_named(hospitals, monkeypatch):
    monkeypatch.setattr(ViewMeansSite, "revision", 2)
    with pytest.raises(RefusedByPolicy, match=f"this release has others: {ViewMeansSite.method}"):
        hospitals.federation()
    for name in NAMES:
        approve_at(hospitals.root / name, hospitals.study_path)
    hospitals.federation().close()


def test_texts_from_elsewhere_move_no_cursor():
    told = harmless("a\x1b[2K\r\u202eb\u2028c\ud800\td\ne")
    assert told == "a [2K  b c \td\ne"
    assert unpack_error(pack_error(1, ConfigurationError("x" * 9999))).what == "x" * MAX_TEXT
