"""Ends of ledgers at other parties: which ends are stored and confirmed, and which losses are detected."""

import stat

import pytest

from multicentre.errors import ConfigurationError, IntegrityError, MessageError
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.ledger_heads import Head, Statement, read_statement
from multicentre.privacy.ledger_witnesses import (
    HeadRecord,
    LostEntries,
    Witness,
    acknowledge_loss,
    acknowledged_losses,
    check_acknowledged,
    check_against,
    check_signed_by,
    confirmed_in,
    peers_file,
)
from multicentre.privacy.secure_sum.identity import Identity

STUDY = "bones"
COORDINATOR = Identity.generate()
LYON, OSLO, ROMA = (Identity.generate() for _ in range(3))
KEYS = {"lyon": [LYON.public.hex()], "oslo": [OSLO.public.hex()], "roma": [ROMA.public.hex()]}


def ledger_of(signer=LYON, n_entries=0, study=STUDY, path=None):
    ledger = Ledger(path, signer=signer, study=study)
    for number in range(n_entries):
        ledger.append("release", {"step": f"x{number}"})
    return ledger


def heads_of(signer, n_entries, study=STUDY):
    """Return the ends of a ledger after each of its entries."""
    ledger, heads = ledger_of(signer, study=study), []
    for number in range(n_entries):
        ledger.append("release", {"step": f"x{number}"})
        heads.append(ledger.head)
    return heads


OSLO_HEADS = heads_of(OSLO, 4)


def packed(**heads):
    return Statement.signed(heads, COORDINATOR).packed


def ends(*heads):
    return [[head.entries, head.hash] for head in heads]


@pytest.fixture
def witness():
    return Witness("lyon", ledger_of(), KEYS)


def next_entry(witness):
    return witness._ledger.append("release", {"step": "next"})


# Ends that a site receives


def test_the_next_entry_confirms_the_ends_of_peers(witness):
    first, second, third, _ = OSLO_HEADS
    roma = heads_of(ROMA, 1)[0]
    witness.receive(packed(oslo=first))
    witness.receive(packed(oslo=second, roma=roma))
    assert witness.heads == {"oslo": second, "roma": roma}
    assert next_entry(witness)["witnessed"] == dict(zip(("oslo", "roma"), ends(second, roma), strict=True))
    assert "witnessed" not in next_entry(witness)
    witness.receive(packed(oslo=third, roma=roma))
    assert next_entry(witness)["witnessed"] == {"oslo": ends(third)[0]}


@pytest.mark.parametrize(
    "head",
    [
        heads_of(ROMA, 3)[2],  # another site's key
        heads_of(OSLO, 3, study="other")[2],
        Head(3, OSLO_HEADS[2].hash, STUDY, OSLO.public.hex(), OSLO_HEADS[1].signature),
    ],
)
def test_ends_that_the_peer_did_not_sign_for_the_study_are_ignored(witness, head):
    witness.receive(packed(oslo=OSLO_HEADS[0]))
    next_entry(witness)
    witness.receive(packed(oslo=head))
    assert witness.heads == {"oslo": OSLO_HEADS[0]}
    assert "witnessed" not in next_entry(witness)


def test_an_unregistered_peer_is_held_to_its_first_key():
    witness = Witness("lyon", ledger_of())
    witness.receive(packed(oslo=OSLO_HEADS[0]))
    witness.receive(packed(oslo=heads_of(ROMA, 3)[2]))
    assert witness.heads == {"oslo": OSLO_HEADS[0]}
    witness.receive(packed(oslo=OSLO_HEADS[1]))
    assert witness.heads == {"oslo": OSLO_HEADS[1]}


def test_ends_of_sites_outside_the_study_are_ignored():
    roma = heads_of(ROMA, 1)[0]
    witness = Witness("lyon", ledger_of(), KEYS, peers=["lyon", "oslo"])
    witness.receive(packed(oslo=OSLO_HEADS[0], roma=roma))
    assert witness.heads == {"oslo": OSLO_HEADS[0]}
    witness.trust(KEYS)
    witness.receive(packed(oslo=OSLO_HEADS[0], roma=roma))
    assert set(witness.heads) == {"oslo", "roma"}
    witness.trust(KEYS, ["roma"])
    assert witness.heads == {"roma": roma}


def test_a_statement_that_no_coordinator_signed_is_refused(witness):
    signed = Statement.signed({"oslo": OSLO_HEADS[0]}, COORDINATOR)
    for statement in (
        Statement(signed.heads),
        Statement(signed.heads, signed.key, "00" * 64),
        Statement({"oslo": OSLO_HEADS[1]}, signed.key, signed.signature),
    ):
        with pytest.raises(IntegrityError, match="must have a valid signature of the coordinator"):
            witness.receive(statement.packed)
    assert witness.heads == {}


def test_a_shorter_end_is_confirmed_and_does_not_replace_the_longer_one(witness, caplog):
    first, second, third, fourth = OSLO_HEADS
    witness.receive(packed(oslo=third))
    next_entry(witness)
    witness.receive(packed(oslo=second))
    assert witness.heads == {"oslo": third}
    assert caplog.messages == ["oslo signed an end of its ledger after entry 2; on file: 3"]
    entry = next_entry(witness)
    assert entry["shorter"] == {"oslo": ends(second)[0]}
    assert "witnessed" not in entry
    # Later ends may belong to the shortened ledger: they are confirmed, and the stored one remains.
    for later in (first, fourth):
        witness.receive(packed(oslo=later))
        assert witness.heads == {"oslo": third}
        assert next_entry(witness)["witnessed"] == {"oslo": ends(later)[0]}


def test_a_second_end_after_as_many_entries_contradicts_the_first(witness):
    other = ledger_of(OSLO)
    for number in range(3):
        other.append("release", {"step": f"y{number}"})
    witness.receive(packed(oslo=OSLO_HEADS[2]))
    next_entry(witness)
    witness.receive(packed(oslo=other.head))
    assert witness.heads == {"oslo": OSLO_HEADS[2]}
    assert next_entry(witness)["shorter"] == {"oslo": ends(other.head)[0]}


def test_only_its_own_signed_end_is_returned_by_a_site():
    ledger = ledger_of()
    assert Witness("lyon", ledger).head is None
    ledger.append("release", {})
    assert Witness("lyon", ledger).head == ledger.head
    unsigned = Ledger(study=STUDY)
    unsigned.append("release", {})
    assert Witness("lyon", unsigned).head is None


# The file next to a ledger


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lyon" / "ledger.jsonl"


def test_ends_are_stored_next_to_the_ledger_and_read_again(path):
    peers = path.with_name("ledger.peers.json")
    assert peers_file(path) == peers
    ledger = ledger_of(path=path, n_entries=1)
    statement = packed(oslo=OSLO_HEADS[1], lyon=ledger.head)
    Witness("lyon", ledger, KEYS).receive(statement)
    assert peers.read_bytes() == statement  # with the coordinator's signature
    assert stat.S_IMODE(peers.stat().st_mode) == 0o600
    again = Witness("lyon", ledger_of(path=path), KEYS)
    assert again.heads == {"oslo": OSLO_HEADS[1]}
    assert Statement.unpack(again.stated.encode()).heads == {"oslo": OSLO_HEADS[1]}
    peers.chmod(0o666)
    with pytest.raises(ConfigurationError, match="list of ledger ends must be writable by its owner only"):
        Witness("lyon", ledger, KEYS)


def test_ends_that_the_site_does_not_accept_are_not_stored(path):
    ledger = ledger_of(path=path, n_entries=1)
    witness = Witness("lyon", ledger, KEYS, peers=["oslo"])
    for heads in ({"oslo": OSLO_HEADS[2], "roma": heads_of(ROMA, 1)[0]}, {"oslo": OSLO_HEADS[1]}):
        witness.receive(packed(**heads))
        stored = read_statement(peers_file(path))
        assert stored.heads == {"oslo": OSLO_HEADS[2], "lyon": ledger.head}
        assert not stored.key


def test_unsigned_ends_on_file_are_ignored(path):
    ledger = ledger_of(path=path)
    peers_file(path).write_bytes(Statement({"oslo": Head(9, "ab" * 32, STUDY, OSLO.public.hex(), "00" * 64)}).packed)
    peers_file(path).chmod(0o600)
    assert Witness("lyon", ledger, KEYS).heads == {}


def test_a_shortened_peer_is_remembered_by_the_ledger(path):
    ledger = ledger_of(path=path)
    witness = Witness("lyon", ledger, KEYS)
    for head in (OSLO_HEADS[2], OSLO_HEADS[1]):
        witness.receive(packed(oslo=head))
        next_entry(witness)
    again = Witness("lyon", ledger_of(path=path), KEYS)
    again.receive(packed(oslo=OSLO_HEADS[3]))
    assert again.heads == {"oslo": OSLO_HEADS[2]}
    again.receive(packed(oslo=OSLO_HEADS[1]))
    assert "shorter" not in next_entry(again)  # an earlier entry has it


# A site's own losses


def test_a_site_detects_that_its_own_ledger_lost_entries(path):
    ledger = ledger_of(path=path, n_entries=3)
    heads = [Head(e["entry"], e["hash"], STUDY, e["key"], e["signature"]) for e in ledger.entries]
    content = path.read_bytes().splitlines(keepends=True)
    Witness("lyon", ledger, KEYS).receive(packed(lyon=heads[2]))
    path.write_bytes(b"".join(content[:1]))
    ledger = ledger_of(path=path)
    witness = Witness("lyon", ledger, KEYS)
    witness.receive(packed(lyon=heads[0]))
    with pytest.raises(LostEntries) as caught:
        witness.receive(packed(lyon=heads[2]))
    assert caught.value.where == str(path)
    assert caught.value.what == "the ledger must contain entry 3, which this site signed; it does not"
    loss = ledger.entries[-1]
    assert (loss["event"], loss["recorded"]) == ("shortened", ends(heads[2])[0])
    for again in (witness, Witness("lyon", ledger_of(path=path), KEYS)):
        with pytest.raises(LostEntries):
            again.check_ledger()
    assert len(ledger.entries) == 2  # the loss is written once
    # The steward acknowledges the loss; the same end no longer stops the site, and a later one does.
    assert acknowledge_loss(ledger) == ends(heads[2])[0]
    assert acknowledged_losses(ledger) == [[3, ledger.entries[-1]["time"]]]
    last = Witness("lyon", ledger, KEYS)
    last.check_ledger()
    last.receive(packed(lyon=heads[2]))
    with pytest.raises(LostEntries, match="must contain entry 9"):
        check_acknowledged(ledger, Head(9, "ab" * 32, STUDY))


def test_an_end_on_file_reveals_a_replaced_ledger(path):
    """A ledger of as many entries with other content was written again."""
    ledger = ledger_of(path=path, n_entries=2)
    Witness("lyon", ledger, KEYS).receive(packed(lyon=ledger.head))
    stored = peers_file(path).read_bytes()
    assert read_statement(peers_file(path)).heads == {"lyon": ledger.head}
    path.unlink()
    ledger = Ledger(path, signer=LYON, study=STUDY)
    for number in range(2):
        ledger.append("release", {"step": f"other{number}"})
    peers_file(path).write_bytes(stored)
    witness = Witness("lyon", ledger, KEYS)
    with pytest.raises(LostEntries, match="must contain entry 2"):
        witness.check_ledger()


def test_ends_of_another_study_or_key_are_not_its_own(witness):
    witness.receive(packed(lyon=heads_of(LYON, 3, study="other")[2]))
    witness.receive(packed(lyon=heads_of(ROMA, 3)[2]))
    witness.check_ledger()
    assert witness._ledger.entries == ()


def test_only_a_recorded_loss_is_acknowledged():
    with pytest.raises(ConfigurationError, match="the ledger records none"):
        acknowledge_loss(ledger_of(n_entries=1))
    check_acknowledged(ledger_of(n_entries=1))
    assert acknowledged_losses(ledger_of(n_entries=1)) == []


# The coordinator's record


@pytest.fixture
def record(tmp_path):
    return HeadRecord(tmp_path / "heads.json", COORDINATOR, KEYS, study=STUDY)


def test_later_ends_replace_earlier_ones(record):
    for head in OSLO_HEADS[:2]:
        assert record.note({"oslo": head, "lyon": None}) == {}
        assert record.note({"oslo": head}) == {}  # the same end again
    assert record._heads == {"oslo": OSLO_HEADS[1]}


OTHER = ledger_of(OSLO, 1)
OTHER.append("release", {"step": "other"})


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (OSLO_HEADS[0], "the site's ledger must end after entry 2, its last end; got 1"),
        (OTHER.head, "the site's ledger must end after entry 2, its last end; got 2"),
        (
            heads_of(ROMA, 3)[2],
            "the site's ledger must be signed under a key of the site; it is signed under a different key",
        ),
        (
            heads_of(OSLO, 3, "other")[2],
            "the site's ledger must be of the study 'bones'; got one of 'other'",
        ),
    ],
)
@pytest.mark.parametrize("keys", [KEYS, None])
def test_an_end_that_does_not_continue_is_refused(tmp_path, head, reason, keys):
    """Without registered keys, the first one remains valid."""
    record = HeadRecord(tmp_path / "heads.json", COORDINATOR, keys, study=STUDY)
    record.note({"oslo": OSLO_HEADS[1]})
    error = record.note({"oslo": head, "roma": heads_of(ROMA, 1)[0]})
    assert list(error) == ["oslo"]
    assert (error["oslo"].where, error["oslo"].what) == ("oslo", reason)
    assert isinstance(error["oslo"], IntegrityError)
    assert record._heads["oslo"] == OSLO_HEADS[1]


def test_without_a_study_and_keys_any_first_end_is_recorded(tmp_path):
    record = HeadRecord(tmp_path / "heads.json", COORDINATOR)
    assert record.note({"oslo": heads_of(OSLO, 1, "other")[0]}) == {}
    registered = HeadRecord(tmp_path / "heads.json", COORDINATOR, KEYS)
    assert list(registered.note({"oslo": heads_of(ROMA, 1)[0]})) == ["oslo"]


def test_new_ends_are_written_and_sent_to_every_site(record, tmp_path):
    assert record.state() == {}
    assert not (tmp_path / "heads.json").exists()
    roma = heads_of(ROMA, 1)[0]
    record.note({"roma": roma, "oslo": OSLO_HEADS[0]})
    sent = record.state()
    assert list(sent) == ["oslo", "roma"]
    assert sent["oslo"] == sent["roma"] == (tmp_path / "heads.json").read_bytes()
    statement = read_statement(tmp_path / "heads.json")
    assert (statement.heads, statement.key) == ({"oslo": OSLO_HEADS[0], "roma": roma}, COORDINATOR.public.hex())
    assert record.state() == {}
    record.note({"oslo": OSLO_HEADS[1]})
    assert list(record.state()) == ["oslo", "roma"]
    again = HeadRecord(tmp_path / "heads.json", COORDINATOR, KEYS, study=STUDY)
    assert again.state() == {}
    assert list(again.note({"oslo": OSLO_HEADS[0]})) == ["oslo"]


def test_without_a_folder_nothing_is_written(tmp_path):
    record = HeadRecord(tmp_path / "absent" / "heads.json", COORDINATOR)
    record.note({"oslo": OSLO_HEADS[0]})
    assert record.state() == {}
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(("n_sites", "sizes"), [(2, {2}), (3, {1, 2}), (4, {2}), (5, {1, 2})])
def test_many_sites_store_the_ends_of_their_group_only(record, monkeypatch, n_sites, sizes):
    monkeypatch.setattr("multicentre.privacy.ledger_witnesses.MAX_IN_GROUP", 2)
    names = [f"site-{number}" for number in range(n_sites)]
    record._keys = {}
    record.note(dict.fromkeys(names, OSLO_HEADS[0]))
    groups = {site: set(Statement.unpack(one).heads) for site, one in record.state().items()}
    assert set(groups) == set(names)
    assert all(site in group for site, group in groups.items())
    assert {len(group) for group in groups.values()} == sizes


def test_a_resumed_run_continues_from_the_recorded_ends(record):
    ledger = ledger_of(OSLO, 4)
    record.note({"oslo": ledger.head, "roma": heads_of(ROMA, 1)[0]})
    ledger.append("release", {"step": "later"})
    record.check({"oslo": ledger})
    with pytest.raises(IntegrityError, match="must reach entry 4, as recorded by the coordinator; it ends at entry 2"):
        record.check({"oslo": ledger_of(OSLO, 2)})
    with pytest.raises(IntegrityError, match="entry 4 must have the hash recorded by the coordinator"):
        record.check({"oslo": ledger_of(ROMA, 5)})


# Ends that sites return when a run is opened


def facts(identity, losses=(), **heads):
    return {"identity": identity.public.hex(), "ends": Statement(heads).packed.decode(), "losses": list(losses)}


def test_each_site_receives_its_longest_end_on_file(record):
    roma = heads_of(ROMA, 2)
    recalled = record.recall(
        {
            "lyon": facts(LYON, oslo=OSLO_HEADS[1], roma=roma[1]),
            "oslo": facts(OSLO, roma=roma[0]),
            "roma": facts(ROMA, oslo=OSLO_HEADS[3], lyon=roma[1]),  # signed under a key of another site
            "graz": {"identity": "", "ends": "damaged"},
            "wien": {},
        }
    )
    statements = {site: Statement.unpack(packed_) for site, packed_ in recalled.items()}
    assert {site: statement.heads for site, statement in statements.items()} == {
        "oslo": {"oslo": OSLO_HEADS[3]},
        "roma": {"roma": roma[1]},
    }
    assert all(statement.is_signed for statement in statements.values())
    assert record.notices == {}


def test_a_first_end_before_the_one_on_file_is_noticed(record):
    """Without an acknowledgement, the site hides that its ledger lost entries."""
    record.recall({"lyon": facts(LYON, oslo=OSLO_HEADS[2]), "oslo": facts(OSLO)})
    assert record.note({"oslo": OSLO_HEADS[2]}) == {}
    assert "after entry 3, although other sites have one after entry 3 on file" in record.notices["oslo"]
    assert record.notices["oslo"].endswith("its steward acknowledged no loss")
    record.notices.clear()
    record.note({"oslo": OSLO_HEADS[3]})
    assert record.notices == {}


def test_a_first_end_after_the_one_on_file_is_in_order(record):
    record.recall({"lyon": facts(LYON, oslo=OSLO_HEADS[2]), "oslo": facts(OSLO)})
    record.note({"oslo": OSLO_HEADS[3], "roma": heads_of(ROMA, 1)[0]})
    assert record.notices == {}


@pytest.mark.parametrize(("entry", "is_hidden"), [(2, True), (3, False), (4, False)])
def test_an_acknowledged_loss_is_noticed_once(record, entry, is_hidden):
    loss = [entry, "2026-01-02T05:04:05+02:00"]
    record.recall({"lyon": facts(LYON, oslo=OSLO_HEADS[2]), "oslo": facts(OSLO, [loss])})
    assert record.notices == {
        "oslo": f"its ledger lost entries, of which entry {entry} is the last known; its steward acknowledged the loss "
        "on 2026-01-02 at 03:04 UTC"
    }
    record.note({"oslo": OSLO_HEADS[0]})
    assert ("acknowledged no loss" in record.notices["oslo"]) is is_hidden


@pytest.mark.parametrize("losses", [3, [3], [[3]], [["x", "2026-01-02T03:04:05+00:00"]], [[3, "yesterday"]], [[3, 4]]])
def test_losses_of_another_form_are_refused(record, losses):
    with pytest.raises(MessageError, match="acknowledged losses of a ledger must be entries with times") as caught:
        record.recall({"oslo": {"losses": losses}})
    assert caught.value.where == "oslo"


# Verification


def test_confirmed_ends_are_read_in_their_order():
    entries = [
        {"entry": 1, "study": STUDY, "witnessed": {"oslo": [1, "aa"], "roma": [2, "bb"]}},
        {"entry": 2},
        {"entry": 3, "study": STUDY, "shorter": {"oslo": [1, "cc"]}, "witnessed": {"roma": [3, "dd"]}},
    ]
    assert confirmed_in(entries) == [
        ("oslo", Head(1, "aa", STUDY)),
        ("roma", Head(2, "bb", STUDY)),
        ("oslo", Head(1, "cc", STUDY)),
        ("roma", Head(3, "dd", STUDY)),
    ]


@pytest.mark.parametrize("name", ["witnessed", "shorter"])
@pytest.mark.parametrize("value", [3, [1], {"oslo": 3}, {"oslo": [1]}, {"oslo": ["x", "aa"]}])
def test_confirmed_ends_of_another_form_are_named(name, value):
    with pytest.raises(IntegrityError, match="entry 7 must contain ends of ledgers by site") as caught:
        confirmed_in([{"entry": 7, name: value}])
    assert caught.value.where == "witnessed"


def test_an_end_must_be_signed_under_a_key_of_the_site():
    check_signed_by(OSLO_HEADS[0], KEYS["oslo"], "oslo")
    for head, keys in (
        (OSLO_HEADS[0], KEYS["roma"]),
        (Head(1, OSLO_HEADS[0].hash, STUDY, OSLO.public.hex(), OSLO_HEADS[1].signature), KEYS["oslo"]),
    ):
        with pytest.raises(IntegrityError, match="must have a valid signature of the site") as caught:
            check_signed_by(head, keys, "oslo")
        assert caught.value.where == "oslo"


LEDGER = ledger_of(OSLO, 4)
ENTRIES, END = LEDGER.entries, LEDGER.head


def against(recorded, entries=ENTRIES):
    return check_against("oslo", "ledger.jsonl", entries, recorded, KEYS["oslo"])


def test_a_ledger_is_compared_with_the_ends_of_all_parties():
    """The ledger of another site confirms the end without its signature."""
    recorded = {
        "the coordinator": [("oslo", END), ("roma", heads_of(ROMA, 9)[8])],
        "lyon": [("oslo", Head(END.entries, END.hash, STUDY))],
        "roma": [],
    }
    assert against(recorded) == 2
    assert against({}) == 0
    assert against({"lyon": [("roma", heads_of(ROMA, 9)[8])]}) == 0


@pytest.mark.parametrize(
    ("head", "entries", "reason"),
    [
        (END, ENTRIES[:3], "must reach entry 4, as recorded by lyon; it ends at entry 3"),
        (OSLO_HEADS[3], [{**one, "hash": "00" * 32} for one in ENTRIES], "must have the hash recorded by lyon"),
        (heads_of(OSLO, 1, "other")[0], ENTRIES, "must be of the study 'other', as recorded by lyon; it is of 'bones'"),
        (heads_of(ROMA, 1)[0], ENTRIES, "must have a valid signature of the site"),
        (END, (), "must reach entry 4, as recorded by lyon; it ends at entry 0"),
    ],
)
def test_entries_that_are_missing_or_rewritten_are_detected(head, entries, reason):
    with pytest.raises(IntegrityError, match=reason) as caught:
        against({"lyon": [("oslo", head)]}, entries)
    assert caught.value.where in ("ledger.jsonl", "lyon, oslo")  # the latter of a signature
