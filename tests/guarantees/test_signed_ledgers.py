"""A ledger that somebody else than its site wrote anew or shortened is found, by the run's folder or by any peer."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.core.calls import Call, encode_call
from multicentre.engines.remote.opening import Opening
from multicentre.engines.remote.packing import Reply, Request
from multicentre.errors import ConfigurationError, IntegrityError
from multicentre.estimator.registry import METHODS
from multicentre.privacy.ledger import Ledger, read_ledger, verify_ledger
from multicentre.privacy.ledger_heads import Head, Statement, read_statement, signed_text
from multicentre.privacy.ledger_witnesses import HeadRecord, Witness, confirmed_in
from multicentre.privacy.minimum_counts import NoisedAnswers
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.studies import read_study, resume_run, run_study
from multicentre.studies.terms import digest_of
from multicentre_sites.deployment.site_folder import read_site
from support.ledger_forgery import cut_off, lines_of, write_anew
from support.real_sites import Hospitals
from support.studies_toy import STUDY, TOY, FedViewMeans, Guess, Interrupts, ViewMeansSite, write_study

SITES = ("lyon", "oslo", "porto")


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "toy", TOY)
        return run_study(read_study(write_study(tmp_path_factory.mktemp("study")))).path


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def verified(*words):
    """Return exit status and what went wrong of ``ledger verify``."""
    result = call("ledger", "verify", *words, "--json")
    told = json.loads(result.stdout)
    return result.exit_code, told.get("error", {}).get("message", "") if result.exit_code else told


def ledger_of(run, site="lyon"):
    return run / "sites" / site / "ledger.jsonl"


def forget_summary(run, *files):
    """Have the coordinator take away what it recorded of the ledgers' ends."""
    for name in ("disclosure.json", *files):
        (run / name).unlink()


def softened(entries):
    return [{**entry, "protection": "masked", "sites": 50} for entry in entries]


def test_every_entry_is_signed_and_the_folder_lists_the_keys(run):
    status, told = verified(run)
    assert status == 0
    assert {site: (one["known_key"], one["witnesses"] >= 3) for site, one in told.items()} == dict.fromkeys(
        SITES, (True, True)
    )
    keys = json.loads((run / "ledger-keys.json").read_text())
    assert {entry["key"] for entry in lines_of(ledger_of(run))} == set(keys["lyon"])


@pytest.mark.parametrize("signer", [None, Identity.generate()], ids=["old signatures", "a key of the forger"])
def test_a_ledger_that_is_rewritten_and_chained_again_is_refused(run, signer):
    path = ledger_of(run)
    head = write_anew(path, softened(lines_of(path)), signer)
    assert len(list(read_ledger(path))) == head.entries  # the chain itself is intact
    forget_summary(run)
    status, message = verified(run)
    assert status == 8
    assert "signature" in message if signer is None else "signed under a key of this site" in message


FACT_OF_WRONG_KIND = [
    {"call": "1"},
    {"call": None},
    {"call": 1e308},
    {"call": 10**30},
    {"time": 5},
    {"time": "2026-01-01T00:00:00"},
    {"peers": 5},
    {"peers": [[1]]},
    {"fields": 5},
    {"fields": ["x"]},
    {"fields": [{"shape": 3}]},
    {"fields": [{"shape": [[]], "field": "x"}]},
    {"fields": [{"shape": [], "field": 5}]},
    {"noise": 5, "rho": 1.0},
    {"noise": {"mechanism": "gaussian", "sums": 0.0}, "rho": 1.0},
    {"noise": {"mechanism": ["gaussian"]}, "rho": 1.0},
    {"epsilon": "1", "rho": 1.0},
    {"epsilon": 10**400, "rho": 1.0},
    {"study": ["x"]},
    {"session": {"a": 1}},
    {"request": {"a": [1]}},
    {"method": [1]},
    {"event": 3},
    {"reason": {}},
    {"requested_by": "ada"},
    {"requested_by": {"name": 3, "fingerprint": None}},
    {"witnessed": [1]},
    {"witnessed": {"a": [10**400, "x"]}},
]


@pytest.mark.parametrize("facts", FACT_OF_WRONG_KIND, ids=str)
def test_a_fact_of_the_wrong_kind_in_a_ledger_that_its_own_site_chained_is_named(tmp_path, facts):
    release = {
        "study": "s",
        "session": "0.1",
        "call": 0,
        "method": "m",
        "step": "x",
        "peers": ["a"],
        "request": "0" * 64,
    }
    paths = {name: tmp_path / name / "ledger.jsonl" for name in ("honest", "forged")}
    Ledger(paths["honest"]).append("release", release)
    Ledger(paths["forged"]).append("release", {**release, **facts})
    for words in (("verify",), ("show",), ("export",), ("compare", paths["honest"])):
        result = call("ledger", *words, paths["forged"])
        assert result.exit_code == IntegrityError.exit_code
        assert f"entry 1 must have valid values: {next(iter(facts))} must be" in result.stderr.replace("\n", " ")
    with pytest.raises(IntegrityError, match="must have valid values"):
        Ledger(paths["forged"])


@pytest.mark.parametrize("event", ["release", "refusal", "failure", "other"])
def test_entries_without_facts_can_be_read(tmp_path, event):
    paths = {name: tmp_path / name / "ledger.jsonl" for name in ("lyon", "oslo")}
    for path in paths.values():
        Ledger(path).append(event, {"call": 1, "rho": 1.0, "fields": [{}]})
    for words in (("verify",), ("show",), ("export",), ("compare", paths["oslo"])):
        assert call("ledger", *words, paths["lyon"]).exit_code == 0


def test_noise_that_a_ledger_paid_for_and_does_not_name_is_refused():
    ledger = Ledger()
    ledger.append("release", {"rho": 1.0})
    with pytest.raises(IntegrityError, match="entry 1 must contain its noise"):
        _ = NoisedAnswers(lambda: ledger.entries).spent


def test_a_ledger_without_signatures_is_refused_where_the_key_is_known(run):
    path = ledger_of(run)
    bare = [{name: entry[name] for name in entry if name not in ("signature", "key")} for entry in lines_of(path)]
    write_anew(path, bare)
    forget_summary(run)
    assert "must have a signature" in verified(run)[1]
    assert "not signed" in call("ledger", "verify", path).stdout


def test_a_list_of_keys_that_names_the_forgers_does_not_help(run):
    forger, path = Identity.generate(), ledger_of(run)
    write_anew(path, softened(lines_of(path)), forger)
    keys = json.loads((run / "ledger-keys.json").read_text())
    (run / "ledger-keys.json").write_text(json.dumps({**keys, "lyon": [forger.public.hex()]}))
    forget_summary(run, "heads.json")
    status, message = verified(run)
    assert status == 8
    assert "must have a valid signature of the site" in message
    (run / "ledger-keys.json").unlink()
    assert "must list the keys" in verified(run)[1]


def test_a_shortened_ledger_is_found_by_what_the_coordinator_recorded(run):
    n_entries = len(lines_of(ledger_of(run)))
    cut_off(ledger_of(run), 2)
    forget_summary(run)
    for site in ("oslo", "porto"):
        (run / "sites" / site / "ledger.peers.json").unlink()
    status, message = verified(run, "--site", "lyon")
    assert status == 8
    assert f"must reach entry {n_entries}, as recorded by the coordinator; it ends at entry {n_entries - 2}" in message


def test_a_shortened_ledger_is_found_by_a_peer_where_the_coordinator_helps_to_hide_it(run):
    n_entries = len(lines_of(ledger_of(run)))
    cut_off(ledger_of(run), 2)
    forget_summary(run, "heads.json")
    status, message = verified(run)
    assert status == 8
    assert f"must reach entry {n_entries}, as recorded by oslo; it ends at entry {n_entries - 2}" in message


def test_a_shortened_ledger_is_found_by_the_signed_ledger_of_a_peer_alone(run):
    cut_off(ledger_of(run), 3)
    forget_summary(run, "heads.json")
    for site in SITES:
        (run / "sites" / site / "ledger.peers.json").unlink()
    status, message = verified(run)
    assert status == 8
    assert "as recorded by the ledger of oslo" in message
    seen = ledger_of(run, "oslo")
    alone = verified(ledger_of(run), "--site", "lyon", "--witness", seen)
    assert alone[0] == 8
    assert verified(ledger_of(run), "--site", "rome", "--witness", seen)[0] == 3


def test_a_ledger_that_is_gone_is_missed(run):
    forget_summary(run, "heads.json")
    shutil.rmtree(run / "sites" / "lyon")
    status, message = verified(run)
    assert status == 8
    assert "lyon" in message


def test_ledgers_of_two_sites_do_not_change_places(run):
    lyon, oslo = ledger_of(run), ledger_of(run, "oslo")
    one, other = lyon.read_bytes(), oslo.read_bytes()
    lyon.write_bytes(other)
    oslo.write_bytes(one)
    forget_summary(run, "heads.json")
    assert "signed under a key of this site" in verified(run)[1]


def test_an_end_that_the_coordinator_made_up_is_not_believed(run):
    statement, forger = read_statement(run / "heads.json"), Identity.generate()
    real = statement.heads["lyon"]
    for forged in (
        dataclasses.replace(real, entries=real.entries + 9),
        dataclasses.replace(real, hash="ab" * 32),
        dataclasses.replace(real, key=forger.public.hex()),
    ):
        stated = Statement.signed({**statement.heads, "lyon": forged}, forger)
        (run / "heads.json").write_bytes(stated.packed)
        assert "must have a valid signature of the site" in verified(run)[1]
    (run / "heads.json").write_bytes(dataclasses.replace(statement, heads={"oslo": statement.heads["oslo"]}).packed)
    assert "valid signature of the coordinator" in verified(run)[1]


def test_a_site_neither_keeps_nor_confirms_ends_that_its_peer_did_not_sign(tmp_path):
    lyon, oslo, coordinator = (Identity.generate() for _ in range(3))
    peer, own = Ledger(signer=oslo, study="s"), Ledger(tmp_path / "ledger.jsonl", signer=lyon, study="s")
    for _ in range(3):
        peer.append("release", {})
    porto = Ledger(signer=Identity.generate(), study="s")
    porto.append("release", {})
    witness = Witness("lyon", own, {"oslo": [oslo.public.hex()]})

    def send(head):
        witness.receive(Statement.signed({"oslo": head}, coordinator).packed)

    stranger = Ledger(signer=Identity.generate(), study="s")
    stranger.append("release", {})
    for forged in (
        dataclasses.replace(peer.head, entries=99),
        stranger.head,
        dataclasses.replace(peer.head, study="t"),
    ):
        send(forged)
        assert witness.heads == {}
        assert "witnessed" not in own.append("release", {})
    real = peer.head
    send(real)
    send(Head(1, peer.entries[0]["hash"], "s", real.key, peer.entries[0]["signature"]))  # an older end
    assert witness.heads == {"oslo": real}
    own.append("release", {})
    assert dict(confirmed_in(own.entries)) == {"oslo": Head(3, real.hash, "s")}
    again = Witness("lyon", own, {"oslo": [oslo.public.hex()], "porto": []})
    assert again.heads == {"oslo": real}
    for _ in range(2):  # two arrive before the next entry: it confirms both
        for ledger in (peer, porto):
            ledger.append("release", {})
            again.receive(Statement.signed({"oslo": peer.head, "porto": porto.head}, coordinator).packed)
    own.append("release", {})
    assert dict(confirmed_in(own.entries[-1:])) == {
        "oslo": Head(5, peer.head.hash, "s"),
        "porto": Head(3, porto.head.hash, "s"),
    }
    with pytest.raises(IntegrityError, match="the ends of ledgers must have a valid signature of the coordinator"):
        witness.receive(Statement({"oslo": real}, coordinator.public.hex(), "00" * 64).packed)


def made_up(study, n_sites):
    """Return well-signed ends of ledgers of sites that do not exist."""
    forger = Identity.generate()
    end = Head(5, "ab" * 32, study, forger.public.hex(), forger.sign(signed_text(study, 5, "ab" * 32)).hex())
    return {f"<img src=x>{number}": end for number in range(n_sites)}


def test_ends_of_sites_that_are_not_of_the_study_are_not_taken_in(tmp_path):
    lyon, oslo, coordinator = (Identity.generate() for _ in range(3))
    own, peer = Ledger(tmp_path / "ledger.jsonl", signer=lyon, study="s"), Ledger(signer=oslo, study="s")
    peer.append("release", {})
    own.append("release", {})
    witness = Witness("lyon", own, peers=["lyon", "oslo", "porto"])
    for name in ("lyon", "oslo "):
        witness.receive(Statement.signed({name: made_up("s", 1).popitem()[1]}, coordinator).packed)
        assert witness.heads == {}
        assert dict(read_statement(tmp_path / "ledger.peers.json").heads) == {"lyon": own.head}  # its own end alone
    witness.receive(Statement.signed({"oslo": peer.head, **made_up("s", 50)}, coordinator).packed)
    assert dict(read_statement(tmp_path / "ledger.peers.json").heads) == {**witness.heads, "lyon": own.head}
    assert witness.heads == {"oslo": peer.head}
    assert set(own.append("release", {})["witnessed"]) == {"oslo"}
    witness.receive(Statement.signed({"oslo": peer.head, "lyon": own.head}, coordinator).packed)
    assert read_statement(tmp_path / "ledger.peers.json").key == coordinator.public.hex()
    witness.receive(Statement.signed({"oslo": peer.head, "lyon": made_up("s", 1).popitem()[1]}, coordinator).packed)
    assert dict(read_statement(tmp_path / "ledger.peers.json").heads) == {"oslo": peer.head, "lyon": own.head}
    # What an earlier version took in goes as well.
    (tmp_path / "ledger.peers.json").write_bytes(Statement(made_up("s", 3)).packed)
    again = Witness("lyon", own)
    again.trust({}, peers=["oslo"])
    assert again.heads == {}


@pytest.mark.parametrize("masks", ["", "\n[privacy]\nsecure_sum = false\n"], ids=["masked", "unmasked"])
def test_a_real_site_confirms_no_ledger_of_a_site_that_does_not_exist(tmp_path, masks):
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, STUDY + masks))
    study = read_study(hospitals.study_path)
    opening = Opening("a1", 0, study.name, digest_of(study), tuple(hospitals.names), study.masked)
    statement = Statement.signed(made_up(study.name, 200), Identity.generate()).packed.decode()
    assert reply_to(hospitals, Request("open", "a1", 0, 1, (), opening.pack())) == "opened"
    guess = Guess({view: np.zeros(2) for view in ("a", "b")})
    call = Call(study.name, "0.1", 0, ViewMeansSite.residuals, guess, tuple(hospitals.names))
    reply_to(hospitals, Request("call", "a1", 0, 2, (), encode_call(call), statement))  # masked: refused, and recorded
    ledger = read_site(hospitals.root / "lyon").ledger_of(study.name)
    entries = list(read_ledger(ledger))
    assert entries
    assert all("witnessed" not in entry for entry in entries)
    assert dict(read_statement(ledger.with_name(f"{ledger.stem}.peers.json")).heads) == {}


def reply_to(hospitals, letter):
    """Return the kind of lyon's reply."""
    return Reply.unpack(hospitals.answer("lyon", letter.pack())).kind


def interrupted(folder):
    path = write_study(folder)
    with pytest.raises(KeyboardInterrupt) as caught:
        run_study(read_study(path), listener=Interrupts(3))
    return next(folder.glob("**/run.json")).parent if caught else None


def test_a_run_is_not_taken_up_over_a_ledger_that_was_changed(tmp_path):
    run = interrupted(tmp_path)
    path = ledger_of(run)
    honest = path.read_bytes()
    cut_off(path, 1)
    with pytest.raises(IntegrityError, match=r"the ledger must reach entry \d+, as recorded by the coordinator"):
        resume_run(run)
    path.write_bytes(honest)
    write_anew(path, softened(lines_of(path)), Identity.generate())
    with pytest.raises(IntegrityError, match="signed under a key of this site"):
        resume_run(run)
    path.write_bytes(honest)
    resume_run(run)
    status, told = verified(run)
    assert status == 0
    # Each process had keys of its own: nobody can add to the first one's entries.
    assert all(len(keys) == 4 for keys in json.loads((run / "ledger-keys.json").read_text()).values())
    assert told["lyon"]["witnesses"] == 5


@pytest.fixture
def hospitals(tmp_path):
    return Hospitals(tmp_path / "sites", write_study(tmp_path))


@pytest.fixture
def fitted(hospitals, tmp_path):
    """Return the sites after a run over letters, and the coordinator's folder of it."""
    folder = tmp_path / "coordinator"
    with hospitals.federation(folder=folder) as federation:
        FedViewMeans(n_rounds=3).fit(federation)
    return hospitals, folder


def site_ledger(hospitals, site="lyon"):
    return read_site(hospitals.root / site).ledger_of("Ward 7")


def test_over_letters_heads_come_back_and_are_kept_by_the_peers(fitted):
    hospitals, folder = fitted
    heads = read_statement(folder / "heads.json").heads
    for site in SITES:
        path = site_ledger(hospitals, site)
        identity = read_site(hospitals.root / site).identity.public.hex()
        head = verify_ledger(path, keys=[identity])
        assert heads[site] == head
        peers = read_statement(path.with_name(f"{path.stem}.peers.json")).heads
        assert peers == heads
        assert set(dict(confirmed_in(list(read_ledger(path))))) == set(SITES) - {site}


def test_each_fit_confirms_where_ledgers_ended_before_it(hospitals, tmp_path):
    with hospitals.federation(folder=tmp_path / "coordinator") as federation:
        for _ in range(2):
            handle = federation.begin(ViewMeansSite)
            request = Guess({view: np.zeros(2) for view in ("a", "b")})
            handle.sum(ViewMeansSite.residuals, request)  # no checkpoint
        path = site_ledger(hospitals)
        assert set(dict(confirmed_in(list(read_ledger(path))))) == {"oslo", "porto"}


def test_the_coordinator_of_real_sites_can_say_where_their_ledgers_ended(fitted):
    hospitals, folder = fitted
    (folder / "run.json").write_text("{}")
    status, told = verified(folder)
    assert status == 0
    heads = {site: verify_ledger(site_ledger(hospitals, site)) for site in SITES}
    assert told == {site: head.to_dict() for site, head in heads.items()}
    assert "the ledger is at the site" in call("ledger", "verify", folder).stdout


def test_over_letters_a_ledger_that_is_rewritten_or_shortened_is_found(fitted):
    hospitals, folder = fitted
    path, card = site_ledger(hospitals), hospitals.root / "lyon" / "lyon.site.toml"
    key = read_site(hospitals.root / "lyon").identity.public.hex()
    entries = lines_of(path)
    witnesses = [folder / "heads.json", site_ledger(hospitals, "oslo").with_name(f"{path.stem}.peers.json")]
    assert verified(path, "--site", "lyon", "--key", card, "--witness", witnesses[1])[0] == 0
    cut_off(path, 2)
    for witness in witnesses:
        status, message = verified(path, "--site", "lyon", "--key", key, "--witness", witness)
        assert status == 8
        assert (
            f"must reach entry {len(entries)}, as recorded by {witness}; it ends at entry {len(entries) - 2}" in message
        )
    # The site itself can write its own ledger anew with its own key; what others saw shows that.
    write_anew(path, softened(entries), read_site(hospitals.root / "lyon").identity)
    assert verified(path, "--site", "lyon", "--key", key)[0] == 0
    assert "it has a different one" in verified(path, "--site", "lyon", "--key", key, "--witness", witnesses[1])[1]
    write_anew(path, softened(entries), Identity.generate())
    assert "signed under a key of this site" in verified(path, "--key", key)[1]


def test_a_site_does_not_go_on_with_a_ledger_that_it_did_not_sign(fitted):
    hospitals, _ = fitted
    path = site_ledger(hospitals)
    write_anew(path, softened(lines_of(path)), Identity.generate())
    hospitals.handlers.clear()
    with pytest.raises(ConfigurationError, match="cannot open this study"):
        hospitals.federation()


def test_the_drill_of_the_page_for_hospital_it(fitted):
    """A changed entry is noticed at the site; a removed end only with what other parties recorded."""
    hospitals, folder = fitted
    path, card = site_ledger(hospitals), hospitals.root / "lyon" / "lyon.site.toml"
    whole = path.read_bytes()
    assert verified(path, "--key", card)[0] == 0
    cut_off(path, 1)
    shortened = call("ledger", "verify", path, "--key", card)
    assert shortened.exit_code == 0
    assert "cut-off entries would not be detected" in " ".join(shortened.stdout.split())
    assert verified(path, "--site", "lyon", "--key", card, "--witness", folder / "heads.json")[0] == 8
    first, rest = whole.split(b"\n", 1)
    path.write_bytes(first.replace(b'"study"', b'"Study"') + b"\n" + rest)
    assert verified(path, "--key", card)[0] == 8
    hospitals.handlers.clear()
    with pytest.raises(ConfigurationError, match="cannot open this study"):
        hospitals.federation()


def test_the_coordinator_notices_a_ledger_that_went_back(fitted):
    hospitals, folder = fitted
    cut_off(site_ledger(hospitals), 3)
    hospitals.handlers.clear()
    with pytest.raises(IntegrityError, match="lyon, Ward 7: the ledger must contain entry 5, which this site signed"):
        hospitals.federation(folder=folder)
    # The coordinator notices it where the site's own list of ends is gone as well.
    site_ledger(hospitals).with_name("ward-7.7f0f2d06.peers.json").unlink()
    entries = lines_of(site_ledger(hospitals))
    write_anew(site_ledger(hospitals), entries[:2], read_site(hospitals.root / "lyon").identity)
    hospitals.handlers.clear()
    with hospitals.federation(folder=folder) as federation:
        another = dataclasses.replace(federation, name="another")  # a fit without a checkpoint
        with pytest.raises(IntegrityError, match=r"must contain entry \d+, which this site signed"):
            FedViewMeans(n_rounds=1).fit(another)


@pytest.mark.parametrize("signs", [True, False])
def test_a_torn_ledger_is_mended_under_the_sites_own_signature_or_without_an_entry(fitted, signs):
    hospitals, _ = fitted
    path, site = site_ledger(hospitals), read_site(hospitals.root / "lyon")
    before = len(lines_of(path))
    with path.open("a") as file:
        file.write('{"entry":')
    options = ["--identity", site.keys.identity] if signs else []
    assert call("ledger", "repair", path, *options).exit_code == 0
    head = verify_ledger(path, keys=[site.identity.public.hex()])
    assert head == Head(before + signs, head.hash, "Ward 7", site.identity.public.hex(), head.signature)
    with path.open("a") as file:
        file.write('{"entry":')
    hospitals.handlers.clear()
    hospitals.federation().close()  # the site's own process sets the piece aside as well
    assert lines_of(path)[-1]["event"] == "repaired"
    verify_ledger(path, keys=[site.identity.public.hex()])


def test_a_site_that_signs_under_another_key_than_before_is_noticed(tmp_path):
    record = HeadRecord(tmp_path / "heads.json", Identity.generate())
    ledgers = [Ledger(signer=Identity.generate(), study="s") for _ in range(2)]
    for number, ledger in enumerate(ledgers, start=1):
        for _ in range(number):
            ledger.append("release", {})
    assert record.note({"lyon": ledgers[0].head, "oslo": None}) == {}
    assert list(record.note({"lyon": ledgers[1].head})) == ["lyon"]
    other = Ledger(signer=Identity.generate(), study="t")
    other.append("release", {})
    strict = HeadRecord(tmp_path / "other.json", Identity.generate(), study="s")
    assert "must be of the study 's'" in strict.note({"lyon": other.head})["lyon"].what
    record.state()
    with pytest.raises(IntegrityError, match="the ledger must reach entry 1, as recorded by the coordinator"):
        HeadRecord(tmp_path / "heads.json", Identity.generate()).check({"lyon": Ledger()})


def test_many_sites_keep_the_ends_of_a_group_each(tmp_path, monkeypatch):
    monkeypatch.setattr("multicentre.privacy.ledger_witnesses.MAX_IN_GROUP", 3)
    record = HeadRecord(tmp_path / "heads.json", Identity.generate())
    names = [f"s{number}" for number in range(7)]
    for name in names:
        ledger = Ledger(signer=Identity.generate(), study="s")
        ledger.append("release", {})
        record.note({name: ledger.head})
    stated = record.state()
    assert set(stated) == set(names)
    groups = {frozenset(Statement.unpack(packed).heads) for packed in stated.values()}
    assert sorted(len(group) for group in groups) == [2, 2, 3]
    assert set(read_statement(tmp_path / "heads.json").heads) == set(names)
    assert record.state() == {}


@pytest.mark.parametrize("field", ["signature", "key"])
@pytest.mark.parametrize("change", [str.upper, lambda text: text[:2] + " " + text[2:]], ids=["capitals", "space"])
def test_a_key_or_signature_in_other_digits_is_refused(tmp_path, field, change):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, signer=Identity.generate(), study="s")
    for number in range(3):
        ledger.append("refusal", {"n": number})
    verify_ledger(path)
    lines = path.read_text().splitlines()
    text = json.loads(lines[1])[field]
    lines[1] = lines[1].replace(text, change(text))
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(IntegrityError, match="entry 2 "):
        verify_ledger(path)
