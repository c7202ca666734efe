"""An analyst has no rights of the coordinator's service, and nobody has hers: a socket, and two accounts."""

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import stat
import tempfile
import threading
from pathlib import Path

import pytest

from multicentre.engines.remote import engine
from multicentre.engines.remote.opening import Opening
from multicentre.engines.remote.packing import pack_error, unpack_error
from multicentre.engines.remote.socket import receive_frame, send_frame
from multicentre.errors import (
    ConfigurationError,
    IntegrityError,
    MessageError,
    QuorumLost,
    RefusedByPolicy,
)
from multicentre.estimator.registry import METHODS
from multicentre.privacy.ledger import read_ledger
from multicentre.studies import read_study
from multicentre.studies.terms import digest_of
from multicentre_sites.deployment import analyst_link, analyst_run, private_files
from multicentre_sites.deployment.analyst_client import ORDER, resume_at_service, run_at_service
from multicentre_sites.deployment.analyst_link import (
    Order,
    connect_to_service,
    listen_for_analysts,
    receive_order,
    send_order,
)
from multicentre_sites.deployment.analyst_run import carry_out, read_order
from multicentre_sites.deployment.analyst_service import AnalystService
from multicentre_sites.deployment.analysts import AdmittedAnalysts, make_analyst, read_analyst, read_analyst_card
from multicentre_sites.deployment.private_files import check_secrets, nothing_for_others
from multicentre_sites.deployment.signed_runs import SignedRuns
from multicentre_sites.deployment.site_folder import read_site
from support import service_of_analysts
from support.accounts import ANALYST, OTHER, SERVICE, as_account, give_to, outcome_of, own_folder, run_as, shared_folder
from support.coordinators import make_consortium
from support.real_sites import NAMES, Hospitals, approve_at
from support.remote_sites import ByHand
from support.studies_toy import STUDY, TOY, write_study
from support.waiting import GENEROUS_S

UNMASKED = STUDY + "\n[privacy]\nsecure_sum = false\n"
TOKEN = "ab" * 16


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)
    monkeypatch.setattr(engine, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(engine, "_CLOSING_S", 0.1)


@pytest.fixture
def short(tmp_path):
    """A folder with a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="mc-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def ada(tmp_path):
    return make_analyst("ada", tmp_path / "ada")


@pytest.fixture
def bea(tmp_path):
    return make_analyst("bea", tmp_path / "bea")


@pytest.fixture
def consortium(tmp_path):
    return make_consortium(tmp_path / "coordinator")


@pytest.fixture
def hospitals(tmp_path, ada):
    made = Hospitals(tmp_path / service_of_analysts.SITES, write_study(tmp_path, UNMASKED))
    for name in NAMES:
        approve_at(made.root / name, card_file(ada))
    return made


def card_file(analyst):
    (path,) = analyst.folder.glob("*.analyst.toml")
    return path


def signed_in(analyst, folder):
    """Return what an analyst noted as signed of the run in a folder."""
    return SignedRuns(analyst.folder).read(json.loads((folder / ORDER).read_text())["token"])


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@contextlib.contextmanager
def serving(path, answer):
    """Answer one connection at a socket in a thread; what it raises is raised here."""
    broke = []

    def serve():
        connection, _ = listener.accept()
        with contextlib.closing(connection):
            try:
                answer(connection)
            except BaseException as error:
                broke.append(error)

    with contextlib.closing(listen_for_analysts(path)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield broke
        thread.join(GENEROUS_S)
    path.unlink()


# The analyst's key


def test_an_analysts_key_is_for_her_account_alone(ada):
    assert (mode_of(ada.folder), mode_of(ada.folder / "key")) == (0o700, 0o600)
    assert read_analyst(ada.folder).card == ada.card
    (ada.folder / "key").chmod(0o640)
    with pytest.raises(ConfigurationError, match="only the owner of a secret file"):
        read_analyst(ada.folder)


def test_an_analysts_key_is_never_overwritten(ada):
    with pytest.raises(ConfigurationError, match="never overwritten"):
        make_analyst("ada", ada.folder)


def test_key_and_card_belong_together(ada, bea):
    shutil.copy(bea.folder / "key", ada.folder / "key")
    with pytest.raises(ConfigurationError, match="belong together"):
        read_analyst(ada.folder)


def test_a_card_that_was_changed_is_refused(ada):
    path = card_file(ada)
    path.write_text(path.read_text().replace('"ada"', '"bea"'))
    with pytest.raises(IntegrityError, match="fingerprint must be that"):
        read_analyst_card(path)


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "x" * 101, "..", "con"])
def test_an_analyst_has_a_plain_name(tmp_path, name):
    with pytest.raises(ConfigurationError, match="analyst's name must be"):
        make_analyst(name, tmp_path / "new")


def test_a_name_is_admitted_with_one_key(tmp_path, ada):
    admitted = AdmittedAnalysts(tmp_path / "analysts.json")
    admitted.add(ada.card)
    admitted.add(ada.card)
    assert (admitted.cards, mode_of(tmp_path / "analysts.json")) == ((ada.card,), 0o600)
    with pytest.raises(ConfigurationError, match="with another key"):
        admitted.add(make_analyst("ada", tmp_path / "false").card)
    admitted.remove("ada")
    assert admitted.cards == ()
    with pytest.raises(ConfigurationError, match="must be admitted; got another name"):
        admitted.remove("ada")
    (tmp_path / "analysts.json").write_text("[{}]")
    with pytest.raises(IntegrityError, match="cannot be read"):
        _ = admitted.cards


# Who may ask


def test_an_order_is_signed_for_one_connection(ada, bea):
    """Whoever saw a signed order, a site or a backup, cannot hand it in again and fetch the results."""
    order, seen = Order(ada.card, TOKEN, "x"), []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        hand = threading.Thread(target=lambda: send_order(ours, ada, order))
        hand.start()
        assert receive_order(theirs, 1, print) == order
        hand.join()
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def overhear():
            seen.append(receive_frame(theirs))

        send_frame(theirs, {"kind": "hello", "nonce": "00", "protocol": analyst_link.WIRE_PROTOCOL})
        send_order(ours, ada, order)
        overhear()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        header, packed = seen[0]
        send_frame(ours, header, packed)
        with pytest.raises(RefusedByPolicy, match="signed for this connection"):
            receive_order(theirs, 1, print)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_frame(theirs, {"kind": "hello", "nonce": "00", "protocol": 0})
        with pytest.raises(ConfigurationError, match="same wire protocol"):
            send_order(ours, bea, order)


@pytest.mark.parametrize(
    "changed",
    [{"token": "../x"}, {"token": 3}, {"study": 3}, {"card": {}}, {"more": 1}, {"card": {"name": "a\n"}}],
    ids=str,
)
def test_an_order_that_is_not_as_declared_is_not_read(ada, changed):
    packed = json.dumps(json.loads(Order(ada.card, TOKEN, "x").pack()) | changed).encode()
    with pytest.raises(MessageError):
        Order.unpack(packed)
    for junk in (b"", b"[]", b"{" * 9999, b"x" * 5 * 2**20):
        with pytest.raises(MessageError):
            Order.unpack(junk)


def test_a_stranger_is_refused_before_anything_runs(consortium, short, ada, bea, hospitals):
    AdmittedAnalysts(consortium.analysts).add(ada.card)
    told = []
    service = AnalystService(consortium, short / "socket", told.append, programme=("-c", "raise SystemExit(9)"))
    study = read_study(hospitals.study_path)
    try:
        for _ in range(2):
            with pytest.raises(RefusedByPolicy, match="must have admitted the analyst") as raised:
                run_at_service(short / "socket", bea, study, told.append)
        assert bea.card.fingerprint in str(raised.value)
        impostor = dataclasses.replace(bea, card=ada.card)
        with pytest.raises(RefusedByPolicy, match="signed for this connection"):
            run_at_service(short / "socket", impostor, study, told.append)
    finally:
        service.close(8.0)
    assert not (short / "socket").exists()
    assert not consortium.runs.exists()


def test_an_account_that_reaches_the_superlink_is_told_to_the_administrator(ada):
    told = []
    with socket.create_server(("127.0.0.1", 0)) as superlink:
        port = superlink.getsockname()[1]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            hand = threading.Thread(target=lambda: send_order(ours, ada, Order(ada.card, TOKEN, "x")))
            hand.start()
            receive_order(theirs, port, told.append)
            hand.join()
    assert len(told) == 1
    assert f"analyst ada reaches the SuperLink at 127.0.0.1:{port}" in told[0]


def test_nobody_else_can_put_a_socket_in_the_services_place(consortium, short):
    short.chmod(0o777)
    with pytest.raises(ConfigurationError, match="writable by its owner only"):
        listen_for_analysts(short / "socket")
    with pytest.raises(ConfigurationError, match="writable by its owner only"):
        connect_to_service(short / "socket")
    short.chmod(0o755)
    (short / "socket").write_text("mine")
    with pytest.raises(ConfigurationError, match="must be free or a socket"):
        listen_for_analysts(short / "socket")
    with pytest.raises(ConfigurationError, match="cannot be reached"):
        connect_to_service(short / "socket")


# What the service does for an analyst, and what she does for it


@pytest.fixture
def answered(consortium, hospitals, ada, short):
    """Answer one order of ada's with the hospitals of this process; return what she gets."""

    def answer(connection):
        link = analyst_run.Link(connection, lambda: None)
        carry_out(consortium, orders[-1], link, lambda folder, study: carrier())

    def carrier():
        return ByHand({name: lambda letter, name=name: hospitals.answer(name, letter) for name in NAMES})

    orders = []

    def receive(connection):
        orders.append(receive_order(connection, 1, print))
        answer(connection)

    def request(resume=None):
        with serving(short / "socket", receive) as broke:
            try:
                if resume is not None:
                    return resume_at_service(short / "socket", ada, resume, lambda line: None)
                study = read_study(hospitals.study_path).with_output(hospitals.root.parent / "runs")
                return run_at_service(short / "socket", ada, study, lambda line: None)
            finally:
                assert not broke

    return request


def test_a_run_comes_back_to_the_analyst_and_ledgers_name_her(consortium, hospitals, ada, answered):
    folder = answered()
    assert folder.metadata["status"] == "finished"
    for name in ("model", "report.html", "study.toml", "disclosure.json", "history.csv"):
        assert (folder.path / name).exists()
    assert not (folder.path / "checkpoints").exists()
    assert mode_of(folder.path) == 0o700
    assert {mode_of(path) for path in folder.path.rglob("*") if path.is_file()} == {0o600}
    assert "site-0" in (folder.path / "study.toml").read_text()  # her own study, as she wrote it
    entries = list(read_ledger(read_site(hospitals.root / "lyon").ledger_of("Ward 7")))
    assert {entry["requested_by"]["fingerprint"] for entry in entries} == {ada.card.fingerprint}
    (kept,) = (consortium.runs / ada.card.fingerprint).iterdir()
    assert "site-0" not in next(kept.glob("*/study.toml")).read_text()


def test_a_run_that_broke_off_is_taken_up_under_a_new_signature(consortium, hospitals, answered, monkeypatch):
    answers, really = [], Hospitals.answer

    def losing(self, name, letter):
        answers.append(name)
        if len(answers) == 8:
            raise KeyboardInterrupt
        return really(self, name, letter)

    monkeypatch.setattr(Hospitals, "answer", losing)
    with pytest.raises(KeyboardInterrupt) as raised:
        answered()
    (resume,) = [note for note in raised.value.__notes__ if "--resume" in note]
    (folder,) = (hospitals.root.parent / "runs").iterdir()
    assert str(folder) in resume
    assert answered(folder).metadata["status"] == "finished"


def test_a_run_of_which_nothing_left_a_site_leaves_no_folder(hospitals, answered):
    from multicentre_sites.deployment.approvals import revoke

    for name in NAMES:
        revoke(read_site(hospitals.root / name).approved, "Ward 7")
    with pytest.raises(RefusedByPolicy, match="must be approved here"):
        answered()
    assert list((hospitals.root.parent / "runs").iterdir()) == []


def test_a_run_of_another_analyst_is_not_taken_up(consortium, hospitals, ada, bea, answered):
    folder = answered().path
    token = json.loads((folder / ORDER).read_text())["token"]
    with pytest.raises(ConfigurationError, match="must have one run of this order"):
        analyst_run._run(consortium, Order(bea.card, token), consortium.runs / bea.card.fingerprint / token, None, None)
    with pytest.raises(ConfigurationError, match="one that was run already"):
        analyst_run._run(
            consortium, Order(ada.card, token, "x"), consortium.runs / ada.card.fingerprint / token, None, None
        )


def test_the_service_opens_no_file_that_an_analyst_names(consortium, tmp_path, ada):
    """The service may read the authority's key: a study whose policy lies there must not have it read, or named."""
    key = json.dumps(str(consortium.superlink_ca_key))
    text = f"{STUDY.replace('[study]', '[study]' + chr(10) + 'output = ' + key)}\n[privacy]\npolicy = {key}\n"
    text += f"[privacy.sites]\nlyon = {key}\n"
    study = read_order(Order(ada.card, TOKEN, text), tmp_path / "out")
    assert study.policies["lyon"].min_patients  # read: none that was named
    assert "ca.key" not in study.to_toml()
    assert study.about.output == tmp_path / "out"
    plain = read_study(write_study(tmp_path, STUDY))
    assert digest_of(read_order(Order(ada.card, TOKEN, plain.to_toml()), tmp_path)) == digest_of(plain)


@pytest.mark.parametrize(
    "changed", [{"terms": "0" * 64}, {"study": "other"}, {"sites": ("lyon",)}, {"secure_sum": True}]
)
def test_an_analyst_signs_her_own_study_alone(hospitals, ada, short, changed):
    study = read_study(hospitals.study_path)
    opening = Opening("a1", 0, study.name, digest_of(study), NAMES, False)
    got = []

    def request(connection):
        receive_order(connection, 1, print)
        packed = analyst_link.pack_opening(dataclasses.replace(opening, **changed))
        send_frame(connection, {"kind": "sign", "folder": "x"}, packed)
        got.append(receive_frame(connection))

    with serving(short / "socket", request), pytest.raises(IntegrityError, match="Nothing was signed"):
        run_at_service(short / "socket", ada, study, print)
    assert got == [None]


@pytest.mark.parametrize("again", [{"run": "b2"}, {"attempt": 1}, {}], ids=["run", "attempt", "same"])
def test_an_order_is_good_for_one_signature(hospitals, ada, short, again):
    """A coordinator that has an analyst sign run after run would have orders to spare."""
    study = read_study(hospitals.study_path).with_output(short / "runs")
    opening = Opening("a1", 0, study.name, digest_of(study), NAMES, False)
    got = []

    def request(connection):
        receive_order(connection, 1, print)
        for one in (opening, dataclasses.replace(opening, **again)):
            send_frame(connection, {"kind": "sign", "folder": "x"}, analyst_link.pack_opening(one))
            got.append(receive_frame(connection))

    with serving(short / "socket", request), pytest.raises(IntegrityError, match="one signature per order"):
        run_at_service(short / "socket", ada, study, print)
    assert [frame is None for frame in got] == [False, True]


@pytest.mark.parametrize("changed", [{"run": "b2"}, {"attempt": 0}], ids=["run", "attempt"])
def test_a_run_that_is_taken_up_is_the_one_that_was_signed(answered, ada, short, changed):
    folder = answered()
    study, kept = folder.study, signed_in(ada, folder.path)
    opening = Opening(kept.run, kept.attempt + 1, study.name, digest_of(study), NAMES, False)

    def request(connection):
        receive_order(connection, 1, print)
        packed = analyst_link.pack_opening(dataclasses.replace(opening, **changed))
        send_frame(connection, {"kind": "sign", "folder": "x"}, packed)
        receive_frame(connection)

    with serving(short / "socket", request), pytest.raises(IntegrityError, match="later attempt of the same run"):
        resume_at_service(short / "socket", ada, folder.path, print)


@pytest.mark.parametrize(
    "place",
    [
        *("../x", "/tmp/x", "a/../../x", "", ".", "./study.toml", ".//order.json", "a/./x", "a//x", "a/", "nul/x"),
        *("study.toml.", "a\\..\\study.toml", ".\\study.toml", "C:x", "study.toml::$DATA", "a\0"),
    ],
)
def test_no_file_of_the_services_lands_outside_the_runs_folder(hospitals, ada, short, place):
    study = read_study(hospitals.study_path).with_output(short / "runs")
    opening = Opening("a1", 0, study.name, digest_of(study), NAMES, False)

    def send(connection):
        receive_order(connection, 1, print)
        send_frame(connection, {"kind": "sign", "folder": "x"}, analyst_link.pack_opening(opening))
        receive_frame(connection)
        send_frame(connection, {"kind": "file", "path": place}, b"mine")
        receive_frame(connection)

    with serving(short / "socket", send), pytest.raises(MessageError, match="outside the run's folder"):
        run_at_service(short / "socket", ada, study, print)
    assert not (short / "x").exists()
    assert {path.name for path in (short / "runs" / "x").iterdir()} == {"study.toml", "order.json"}


@pytest.mark.parametrize("name", ["study.toml", "STUDY.toml", "order.json", "Order.JSON", "study.toml/x"])
def test_the_service_does_not_replace_the_study_that_she_signs_for(hospitals, ada, short, name):
    """When the run is taken up again, its terms are compared with those of the study in the run's folder."""
    study = read_study(hospitals.study_path).with_output(short / "runs")
    opening = Opening("a1", 0, study.name, digest_of(study), NAMES, False)

    def send(connection):
        receive_order(connection, 1, print)
        send_frame(connection, {"kind": "sign", "folder": "x"}, analyst_link.pack_opening(opening))
        receive_frame(connection)
        send_frame(connection, {"kind": "file", "path": name}, b"mine")

    with (
        serving(short / "socket", send),
        pytest.raises(MessageError, match="service broke") as raised,
    ):
        run_at_service(short / "socket", ada, study, print)
    folder = short / "runs" / "x"  # the run may go on at the service: it can be taken up
    assert str(folder) in raised.value.hint
    assert (folder / "study.toml").read_text() == study.to_toml()
    assert {path.name for path in folder.iterdir()} == {"study.toml", "order.json"}
    assert signed_in(ada, folder).run == "a1"


def test_a_study_that_was_changed_in_the_runs_folder_is_not_signed_for(answered, ada, bea, short):
    """Whatever way it came there: the digest in the analyst's own folder decides."""
    run = answered().path
    study, order = run / "study.toml", run / ORDER
    text, kept = study.read_text(), order.read_text()
    record = ada.folder / "signed" / f"{json.loads(kept)['token']}.json"
    assert mode_of(record) == 0o600

    def refused(kind, said, analyst=ada):
        with pytest.raises(kind, match=said):  # before the service is asked: nobody listens
            resume_at_service(short / "socket", analyst, run, print)

    study.write_text(text.replace("secure_sum = false", "secure_sum = true"))
    assert study.read_text() != text
    refused(IntegrityError, "must be the one that was signed")
    study.write_text(text)
    order.write_text(json.dumps({"token": TOKEN}))
    refused(ConfigurationError, "must have a record of the signed run")
    order.write_text(json.dumps({"token": "../" + TOKEN}))
    refused(ConfigurationError, "must be 32 hexadecimal digits")
    order.write_text(kept)
    refused(ConfigurationError, "must have a record of the signed run", bea)
    record.write_text("{}")
    refused(IntegrityError, "cannot be read")
    record.chmod(0o622)
    refused(ConfigurationError, "writable by its owner only")


def test_the_service_does_not_make_the_folder_of_the_analysts_records(hospitals, ada, short):
    """The service names the run's folder, and the analyst's results may lie in her own folder."""
    study = read_study(hospitals.study_path).with_output(ada.folder)
    opening = Opening("a1", 0, study.name, digest_of(study), NAMES, False)

    def send(connection):
        receive_order(connection, 1, print)
        send_frame(connection, {"kind": "sign", "folder": "signed"}, analyst_link.pack_opening(opening))
        receive_frame(connection)

    with serving(short / "socket", send), pytest.raises(MessageError, match="File exists"):
        run_at_service(short / "socket", ada, study, print)
    assert [path.suffix for path in (ada.folder / "signed").iterdir()] == [".json"]


def test_an_error_keeps_its_kind_on_the_way_back():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        analyst_link.send_end(ours, 6, QuorumLost("lost", where="lyon"))
        with pytest.raises(QuorumLost, match="lyon: lost"):
            analyst_link.expect_frame(theirs, "hello")


def test_the_coordinators_error_names_its_folder_and_a_sites_error_names_none():
    """The remedy at the coordinator is a command with its folder; a site's paths are removed at the site."""
    hint = "Sign it: multicentre coordinator sign-app --folder /srv/consortium."
    ours, theirs = socket.socketpair()
    with ours, theirs:
        analyst_link.send_end(ours, 3, ConfigurationError("the bundle must be signed", hint=hint))
        with pytest.raises(ConfigurationError) as caught:
            analyst_link.expect_frame(theirs, "hello")
    assert caught.value.hint == hint
    assert unpack_error(pack_error(0, ConfigurationError("x", where="/data/hips.csv"))).where == "a file of the site"


# Keys for the service's account alone


SECRETS = ("superlink_ca_key", "superlink_key", "release_key", "superexec_secret")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
@pytest.mark.parametrize("name", SECRETS)
def test_a_key_that_others_have_rights_to_is_refused(consortium, name, mode):
    check_secrets(consortium)
    getattr(consortium, name).chmod(mode)
    with pytest.raises(ConfigurationError, match="must have mode 600"):
        check_secrets(consortium)


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_a_database_that_others_have_rights_to_is_refused(consortium, end):
    path = consortium.state / f"superlink.db{end}"
    path.write_bytes(b"")
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="must have mode 600"):
        check_secrets(consortium)
    path.chmod(0o600)
    check_secrets(consortium)


@pytest.mark.parametrize("name", ["pki", "secrets", "state", "flower"])
def test_a_folder_of_keys_that_others_may_enter_is_refused(consortium, name):
    (consortium.folder / name).chmod(0o710)
    with pytest.raises(ConfigurationError, match="must have mode 700"):
        check_secrets(consortium)


@pytest.mark.parametrize("name", [".", "coordinator.toml", "register.json", "analysts.json"])
def test_what_decides_about_keys_and_analysts_is_written_by_nobody_else(consortium, ada, name):
    AdmittedAnalysts(consortium.analysts).add(ada.card)
    check_secrets(consortium)
    path = consortium.folder / name
    path.chmod(mode_of(path) | 0o020)
    with pytest.raises(ConfigurationError, match="writable by its owner only"):
        check_secrets(consortium)


def test_a_key_of_another_account_is_refused(consortium, monkeypatch):
    monkeypatch.setattr(private_files.os, "geteuid", lambda: 4711)
    with pytest.raises(ConfigurationError, match="account of the coordinator's service"):
        check_secrets(consortium)


def test_what_the_service_makes_is_for_its_account(tmp_path):
    before = os.umask(0o022)
    os.umask(before)
    with nothing_for_others():
        (tmp_path / "superlink.db").write_bytes(b"")
    assert mode_of(tmp_path / "superlink.db") == 0o600
    assert os.umask(before) == before


# Two accounts


@pytest.fixture
def machine():
    """A folder that every account may enter."""
    with shared_folder() as root:
        yield root


TOY_COMMAND = (
    "import sys; from support.studies_toy import TOY; from multicentre.estimator.registry import METHODS; "
    "METHODS['toy'] = TOY; from multicentre.cli import main; main()"
)


@pytest.mark.slow
def test_an_analyst_of_another_account_gets_her_results_and_no_key(machine):
    home = own_folder(machine, "srv", SERVICE)
    consortium = make_consortium(home / "coordinator")
    study = write_study(machine, UNMASKED)
    hospitals = Hospitals(home / service_of_analysts.SITES, study)
    analyst, door = own_folder(machine, "ada", ANALYST), own_folder(machine, "run", SERVICE)
    keygen = ("-m", "multicentre", "analyst", "keygen", "ada", "--folder", analyst / "key")
    code, printed = run_as(ANALYST, analyst, *keygen)
    assert code == 0, printed
    card = analyst / "key" / "ada.analyst.toml"
    AdmittedAnalysts(consortium.analysts).add(read_analyst_card(card))
    for name in NAMES:
        approve_at(hospitals.root / name, card)
    (consortium.state / "superlink.db").touch(mode=0o600)
    give_to(SERVICE, home)
    command = ("run", study, "--coordinator", door / "socket", "--output", analyst / "runs", "--analyst", card.parent)
    service = as_account(SERVICE, home, service_of_analysts.__file__, "serve", consortium.folder, door / "socket")
    try:
        assert service.stdout.readline().strip() == "Ready"
        code, printed = run_as(ANALYST, analyst, "-c", TOY_COMMAND, *command)
        assert code == 0, printed
        code, printed = run_as(OTHER, machine, "-c", TOY_COMMAND, *command)  # in her name, under a third account
        assert code, printed
        assert "not readable" in printed
    finally:
        code, printed = outcome_of(service)
    assert code == 0, printed
    assert "Analyst ada" in printed
    (result,) = (analyst / "runs").iterdir()
    assert (result / "report.html").stat().st_uid == ANALYST
    assert json.loads((result / "run.json").read_text())["status"] == "finished"
    for name in NAMES:
        entries = list(read_ledger(read_site(hospitals.root / name).ledger_of("Ward 7")))
        assert {entry["requested_by"]["fingerprint"] for entry in entries} == {read_analyst_card(card).fingerprint}
    secrets = [getattr(consortium, one) for one in SECRETS]
    for path in (*secrets, consortium.state / "superlink.db", consortium.analysts, consortium.runs):
        assert path.exists()
        code, printed = run_as(ANALYST, analyst, "-c", f"open({str(path)!r})")
        assert (code, "PermissionError" in printed) == (1, True), path
