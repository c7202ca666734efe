"""Nobody runs a study at a site in an analyst's name: forged, altered, replayed and foreign requests are refused."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta

import pytest

import multicentre as mc
from multicentre.core.links import MAX_CLOCK_DIFFERENCE_S
from multicentre.core.summation import PlainSummation
from multicentre.engines.remote import engine
from multicentre.engines.remote.opening import LIFETIME_S, AnalystRequest, Opening, sign_opening
from multicentre.engines.remote.packing import Reply, Request, unpack_error
from multicentre.errors import ConfigurationError, MessageError, ProtocolRefused, RefusedByPolicy
from multicentre.estimator.registry import METHODS
from multicentre.privacy.ledger import read_ledger
from multicentre.studies.site_data import read_sites
from multicentre.studies.study import make_estimator
from multicentre.studies.study_file import read_study
from multicentre.studies.terms import digest_of
from multicentre_sites.deployment.analysts import make_analyst
from multicentre_sites.deployment.approvals import approve, revoke
from multicentre_sites.deployment.proposals import fingerprint_of, recognise
from multicentre_sites.deployment.release_key import ReleaseKey, openssh_line
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.site_service import card_of
from support.real_sites import NAMES, Hospitals, approve_at
from support.studies_toy import STUDY, TOY, FedViewMeans, write_study

RUN = "a1"
UNMASKED = STUDY + "\n[privacy]\nsecure_sum = false\n"


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)
    monkeypatch.setattr(engine, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(engine, "_CLOSING_S", 0.1)


@pytest.fixture
def ada(tmp_path):
    return make_analyst("ada", tmp_path / "ada")


@pytest.fixture
def bea(tmp_path):
    return make_analyst("bea", tmp_path / "bea")


def card_file(analyst):
    (path,) = analyst.folder.glob("*.analyst.toml")
    return path


@pytest.fixture
def hospitals(tmp_path, ada):
    """Three sites that approved a study and ada."""
    made = Hospitals(tmp_path / "sites", write_study(tmp_path, UNMASKED))
    for name in NAMES:
        approve_at(made.root / name, card_file(ada))
    return made


def signer(analyst):
    return lambda opening: sign_opening(opening, analyst.identity, analyst.card.name)


def entries_at(hospitals, name):
    return list(read_ledger(read_site(hospitals.root / name).ledger_of("Ward 7")))


class Door:
    """Writes openings of one run to one site."""

    def __init__(self, hospitals, run=RUN):
        self.hospitals, self.number = hospitals, 0
        study = read_study(hospitals.study_path)
        self.opening = Opening(run, 0, study.name, digest_of(study), NAMES, False)

    def open(self, opening, site="lyon"):
        self.number += 1
        letter = Request("open", opening.run, opening.attempt, self.number, (), opening.pack())
        return Reply.unpack(self.hospitals.answer(site, letter.pack()))

    def close(self, opening):
        self.number += 1
        letter = Request("close", opening.run, opening.attempt, self.number, (), b"")
        return Reply.unpack(self.hospitals.answer("lyon", letter.pack()))

    def signed(self, analyst, now=None, **changed):
        opening = dataclasses.replace(self.opening, **changed)
        return dataclasses.replace(opening, request=sign_opening(opening, analyst.identity, analyst.card.name, now))


@pytest.fixture
def door(hospitals):
    return Door(hospitals)


def refusal(reply, kind=RefusedByPolicy):
    assert reply.kind == "refused"
    error = unpack_error(reply)
    assert isinstance(error, kind)
    return str(error)


@pytest.mark.parametrize("text", [STUDY, UNMASKED], ids=["masked", "unmasked"])
def test_every_entry_of_every_ledger_names_the_analyst(tmp_path, ada, text):
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, text))
    for name in NAMES:
        approve_at(hospitals.root / name, card_file(ada))
    with hospitals.federation(sign=signer(ada)) as federation:
        FedViewMeans(n_rounds=2).fit(federation)
        if text is STUDY:
            federation = dataclasses.replace(federation, summation=PlainSummation())
            with pytest.raises(RefusedByPolicy, match="must be masked"):
                FedViewMeans(n_rounds=1).fit(federation)
    for name in NAMES:
        entries = entries_at(hospitals, name)
        assert {entry["event"] for entry in entries} == {"release", *(["refusal"] if text is STUDY else [])}
        assert all(e["requested_by"] == {"name": "ada", "fingerprint": ada.card.fingerprint} for e in entries)


def test_without_approved_analysts_a_ledger_says_that_nobody_signed(tmp_path):
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, UNMASKED))
    with hospitals.federation() as federation:
        FedViewMeans(n_rounds=1).fit(federation)
    asked = [entry["requested_by"] for entry in entries_at(hospitals, "lyon")]
    assert asked
    assert all(one == {"name": "coordinator", "fingerprint": None} for one in asked)


def test_the_coordinators_own_runs_are_known_by_its_release_key(tmp_path, ada):
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, UNMASKED))
    key, false = ReleaseKey.generate(), ReleaseKey.generate()
    (tmp_path / "release.pub").write_text(openssh_line(key.public))
    for name in ("lyon", "oslo"):  # porto approved a bundle alone
        approve_at(hospitals.root / name, tmp_path / "release.pub")

    def sign(opening):
        return sign_opening(opening, key.identity, "coordinator")

    with hospitals.federation(sign=sign) as federation:
        FedViewMeans(n_rounds=1).fit(federation)
    fingerprints = [{entry["requested_by"]["fingerprint"] for entry in entries_at(hospitals, name)} for name in NAMES]
    expected = fingerprint_of(openssh_line(key.public))
    assert fingerprints == [{expected}, {expected}, {None}]
    with pytest.raises(RefusedByPolicy, match="it signed by another"):
        hospitals.federation(sign=lambda opening: sign_opening(opening, false.identity, "coordinator"))
    approve_at(hospitals.root / "oslo", card_file(ada))
    with pytest.raises(RefusedByPolicy, match=r"^oslo, .* the coordinator signed it"):
        hospitals.federation(sign=sign)
    with pytest.raises(ConfigurationError, match="not 'coordinator'"):
        make_analyst("Coordinator", tmp_path / "impostor")


def test_in_one_process_nobody_asks_from_elsewhere(hospitals):
    study = read_study(hospitals.study_path)
    data = {name: site.data for name, site in read_sites(study).items()}
    with mc.Federation.in_process(data, study=study.name) as federation:
        make_estimator(study).fit(federation)
        assert all("requested_by" not in entry for ledger in federation.ledgers.values() for entry in ledger.entries)


def test_a_coordinator_that_strips_the_signature_is_refused(hospitals, door):
    assert "nobody signed it" in refusal(door.open(door.opening))
    with pytest.raises(RefusedByPolicy, match="signed by an approved analyst"):
        hospitals.federation()
    assert not read_site(hospitals.root / "lyon").ledger_of("Ward 7").exists()  # no data were read either


def test_an_analyst_whom_nobody_approved_is_refused_by_fingerprint(door, bea):
    said = refusal(door.open(door.signed(bea)))
    assert "must be approved here" in said
    assert bea.card.fingerprint in said


@pytest.mark.parametrize(
    "changed",
    [
        {"run": "b2"},
        {"attempt": 1},
        {"study": "Ward 8"},
        {"terms": "0" * 64},
        {"sites": NAMES[:2]},
        {"secure_sum": True},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_signature_is_good_for_no_other_opening(door, ada, changed):
    """A coordinator that holds a true request of ada's puts it under a study, a run or a roster of its own."""
    altered = dataclasses.replace(door.signed(ada), **changed)
    assert "signature of ada must be over this study" in refusal(door.open(altered))
    assert door.open(door.signed(ada)).kind == "opened"


def test_nobody_else_speaks_in_an_analysts_name(door, ada, bea):
    true = door.signed(ada).request
    theirs = sign_opening(door.opening, bea.identity, "ada")
    assert "must be approved here" in refusal(door.open(dataclasses.replace(door.opening, request=theirs)))
    under_her_key = dataclasses.replace(theirs, public_key=true.public_key)
    assert "signature of ada" in refusal(door.open(dataclasses.replace(door.opening, request=under_her_key)))
    renamed = dataclasses.replace(true, analyst="bea")
    assert "signature of bea" in refusal(door.open(dataclasses.replace(door.opening, request=renamed)))
    younger = dataclasses.replace(true, time=true.time + 1)
    assert "signature of ada" in refusal(door.open(dataclasses.replace(door.opening, request=younger)))


def test_a_request_is_good_for_a_week(door, ada):
    old = datetime.now(UTC) - timedelta(seconds=LIFETIME_S + 60)
    assert "must be at most 7 days old" in refusal(door.open(door.signed(ada, old)))


@pytest.mark.parametrize("ahead_s", [MAX_CLOCK_DIFFERENCE_S + 60, 3600])
def test_a_request_from_the_future_names_the_clocks_on_both_sides(door, ada, ahead_s, caplog):
    """The SuperLink accepts a site whose clock is minutes behind: only its own comparison reveals it."""
    future = datetime.now(UTC) + timedelta(seconds=ahead_s)
    said = refusal(door.open(door.signed(ada, future)))
    logged = " ".join(record.getMessage() for record in caplog.records if record.name.startswith("multicentre.site"))
    for text in (said, logged):
        assert f"clocks of site and analyst must be within {MAX_CLOCK_DIFFERENCE_S:g} s; the site's is" in text
        assert "Set the clock" in text
    assert (
        door.open(door.signed(ada, datetime.now(UTC) + timedelta(seconds=MAX_CLOCK_DIFFERENCE_S - 2))).kind == "opened"
    )


def test_an_earlier_attempt_is_not_opened_again_even_after_a_restart(hospitals, door, ada):
    first, second = door.signed(ada), door.signed(ada, attempt=1)
    assert door.open(first).kind == "opened"
    assert door.open(second).kind == "opened"
    hospitals.handlers.clear()
    assert door.open(second).kind == "opened"  # the site's process began anew in mid-run
    hospitals.handlers.clear()
    assert "latest attempt, 1" in refusal(door.open(first), ProtocolRefused)


@pytest.mark.parametrize("restarted", ["never", "before", "after"])
def test_a_run_that_was_closed_is_not_opened_again_by_the_same_signature(hospitals, door, ada, restarted):
    """Whoever gets hold of a coordinator's letters within a week asks nothing more in the analyst's name."""
    first = door.signed(ada)
    assert door.open(first).kind == "opened"
    if restarted == "before":
        hospitals.handlers.clear()
    assert door.close(first).kind == ("closed" if restarted == "before" else "done")
    if restarted == "after":
        hospitals.handlers.clear()
    assert "attempt 0 was closed" in refusal(door.open(first), ProtocolRefused)
    assert "attempt 0 was closed" in refusal(door.open(door.signed(ada)), ProtocolRefused)
    assert door.open(door.signed(ada, attempt=1)).kind == "opened"  # the analyst takes the run up again
    hospitals.handlers.clear()
    assert door.close(first).kind == "closed"  # the end of the earlier attempt ends no later one
    assert door.open(door.signed(ada, attempt=1)).kind == "opened"


def test_a_run_belongs_to_the_analyst_who_opened_it(hospitals, door, ada, bea):
    """Another approved analyst would get at what sites remember of the first one's run."""
    approve_at(hospitals.root / "lyon", card_file(bea))
    assert door.open(door.signed(ada)).kind == "opened"
    hospitals.handlers.clear()
    assert "belongs to another" in refusal(door.open(door.signed(bea, attempt=1)), ProtocolRefused)


def test_a_list_of_opened_runs_that_was_damaged_is_no_empty_list(hospitals, door, ada):
    read_site(hospitals.root / "lyon").opened.write_text("{")
    assert door.open(door.signed(ada)).kind == "refused"


@pytest.mark.parametrize("whom", ["nobody", "bea"])
def test_a_study_may_be_approved_for_one_analyst_alone(hospitals, door, ada, bea, whom):
    lyon = read_site(hospitals.root / "lyon")
    approve_at(lyon.folder, card_file(bea))
    approve(lyon.approved, recognise(str(hospitals.study_path)), card_of(lyon), analysts=[ada.card.fingerprint])
    if whom == "bea":
        assert "for other analysts only" in refusal(door.open(door.signed(bea)))
    else:
        revoke(lyon.approved, ada.card.fingerprint)
        revoke(lyon.approved, bea.card.fingerprint)
        assert "nobody signed it" in refusal(door.open(door.opening))
        return
    assert door.open(door.signed(ada)).kind == "opened"


def test_an_analyst_whose_approval_is_taken_back_ends_her_run(hospitals, ada):
    with hospitals.federation(sign=signer(ada)) as federation:
        FedViewMeans(n_rounds=1).fit(federation)
        revoke(read_site(hospitals.root / "oslo").approved, ada.card.fingerprint)
        with pytest.raises(RefusedByPolicy, match="were changed since"):
            FedViewMeans(n_rounds=1).fit(federation)


def test_an_approval_that_is_taken_back_opens_no_site_to_unsigned_runs(hospitals, door, ada):
    lyon = read_site(hospitals.root / "lyon")
    revoke(lyon.approved, ada.card.fingerprint)
    assert "nobody signed it" in refusal(door.open(door.opening))
    revoke(lyon.approved, "signatures")
    assert door.open(door.opening).kind == "opened"


def test_two_runs_at_once_are_each_under_their_own_name(hospitals, ada, bea):
    """One guard and one ledger serve all runs of a study."""
    for name in NAMES:
        approve_at(hospitals.root / name, card_file(bea))
    with hospitals.federation(sign=signer(ada)) as hers, hospitals.federation(sign=signer(bea)) as theirs:
        for federation in (hers, theirs, hers):
            FedViewMeans(n_rounds=1).fit(federation)
    names = [entry["requested_by"]["name"] for entry in entries_at(hospitals, "lyon") if entry["event"] == "release"]
    assert names == ["ada", "bea", "ada"]


@pytest.mark.parametrize(
    "changed",
    [
        {"analyst": "ada\x1b[2K"},
        {"analyst": "x" * 200},
        {"analyst": 3},
        {"time": -1},
        {"time": 1.5},
        {"time": True},
        {"signature": "00"},
        {"public_key": "Z" * 64},
        {"more": 1},
    ],
    ids=str,
)
def test_a_request_that_is_not_as_declared_is_not_read(door, ada, changed):
    signed = door.signed(ada)
    body = json.loads(signed.pack())
    body["request"] |= changed
    letter = Request("open", RUN, 0, 1, (), json.dumps(body).encode())
    with pytest.raises(MessageError):
        Opening.of(letter)
    assert Opening.of(dataclasses.replace(letter, body=signed.pack())) == signed
    assert isinstance(signed.request, AnalystRequest)
