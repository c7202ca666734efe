"""Ledgers of the sites of one process: signed under new keys, continued, and held to the terms of the run."""

import hashlib
import json

import pytest

from multicentre.errors import IntegrityError
from multicentre.privacy.ledger import Ledger, read_ledger, verify_ledger
from multicentre.privacy.policy import Policy
from multicentre.privacy.run_ledgers import (
    KEYS,
    SiteLedgers,
    check_terms,
    describe_changes,
    note_terms,
    read_keys,
    terms_of,
)

SITES = ("lyon", "oslo")


def file_of(root, site="lyon"):
    return root / "sites" / site / "ledger.jsonl"


def test_without_a_folder_ledgers_stay_in_memory_and_are_signed():
    ledgers = SiteLedgers(None, SITES, "bones")
    assert list(ledgers.ledgers) == list(ledgers.identities) == list(ledgers.public) == ["lyon", "oslo"]
    for site, ledger in ledgers.ledgers.items():
        entry = ledger.append("release", {"step": "x"})
        assert (ledger.path, ledger.study, entry["study"]) == (None, "bones", "bones")
        assert entry["key"] == ledgers.public[site].hex() == ledgers.identities[site].public.hex()
        assert ledger.head.is_signed
    assert ledgers.record() is None


def test_every_process_signs_under_new_keys_which_the_folder_lists(tmp_path):
    keys = {site: [] for site in SITES}
    for number in (1, 2):
        ledgers = SiteLedgers(tmp_path, SITES, "bones")
        for site in SITES:
            ledgers.ledgers[site].append("release", {"step": f"x{number}"})
            keys[site].append(ledgers.public[site].hex())
    assert read_keys(tmp_path) == keys
    assert len({*keys["lyon"], *keys["oslo"]}) == 4
    for site in SITES:
        assert [entry["step"] for entry in read_ledger(file_of(tmp_path, site))] == ["x1", "x2"]
        assert [entry["key"] for entry in read_ledger(file_of(tmp_path, site))] == keys[site]
        assert verify_ledger(file_of(tmp_path, site), keys=keys[site]).entries == 2
    SiteLedgers(tmp_path, ["lyon"], "bones")
    assert read_keys(tmp_path)["oslo"] == keys["oslo"]


def test_a_truncated_entry_is_removed_and_the_repair_is_signed(tmp_path):
    SiteLedgers(tmp_path, SITES, "bones").ledgers["lyon"].append("release", {"step": "x"})
    path = file_of(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"entry":2,"torn')
    ledgers = SiteLedgers(tmp_path, SITES, "bones")
    release, repair = ledgers.ledgers["lyon"].entries
    assert (release["step"], repair["event"], repair["study"]) == ("x", "repaired", "bones")
    assert repair["key"] == ledgers.public["lyon"].hex()
    verify_ledger(path, keys=read_keys(tmp_path)["lyon"])


def test_a_first_entry_that_is_truncated_is_removed_too(tmp_path):
    """The ledger is empty before the repair is entered."""
    SiteLedgers(tmp_path, SITES, "bones").ledgers["lyon"].append("release", {"step": "x"})
    path = file_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    ledgers = SiteLedgers(tmp_path, SITES, "bones")
    (repair,) = ledgers.ledgers["lyon"].entries
    assert (repair["event"], repair["study"]) == ("repaired", "bones")
    assert repair["key"] == ledgers.public["lyon"].hex()


def test_an_empty_ledger_is_begun(tmp_path):
    """A crash can leave the file without its first entry."""
    file_of(tmp_path).parent.mkdir(parents=True, mode=0o700)
    file_of(tmp_path).write_bytes(b"")
    ledgers = SiteLedgers(tmp_path, SITES, "bones")
    ledgers.ledgers["lyon"].append("release", {"step": "x"})
    assert verify_ledger(file_of(tmp_path), keys=read_keys(tmp_path)["lyon"]).entries == 1


def test_a_ledger_of_another_key_is_refused(tmp_path):
    SiteLedgers(tmp_path, SITES, "bones").ledgers["lyon"].append("release", {"step": "x"})
    (tmp_path / KEYS).unlink()
    with pytest.raises(IntegrityError, match="must be signed under a key of this site"):
        SiteLedgers(tmp_path, SITES, "bones")


def test_a_folder_without_a_list_has_no_keys(tmp_path):
    assert read_keys(tmp_path) == {}


@pytest.mark.parametrize("text", ["", "[]", "3", '{"lyon": 3}', "{", "[" * 100_000])
def test_a_damaged_list_of_keys_is_named(tmp_path, text):
    (tmp_path / KEYS).write_text(text)
    with pytest.raises(IntegrityError) as caught:
        read_keys(tmp_path)
    assert caught.value.where == str(tmp_path / KEYS)
    assert caught.value.what == "the list of the sites' keys is damaged or cannot be read"
    assert caught.value.hint == "Restore it from a copy."


def test_a_link_in_the_place_of_the_list_is_named(tmp_path):
    (tmp_path / "other").write_text("{}")
    (tmp_path / KEYS).symlink_to(tmp_path / "other")
    with pytest.raises(IntegrityError, match="the list of the sites' keys must be a regular file"):
        read_keys(tmp_path)


def test_the_ends_of_the_ledgers_are_checked_when_a_run_is_resumed(tmp_path):
    ledgers = SiteLedgers(tmp_path, SITES, "bones")
    record = ledgers.record()
    for site, ledger in ledgers.ledgers.items():
        ledger.append("release", {"step": "x"})
        assert record.note({site: ledger.head}) == {}
    record.state()
    SiteLedgers(tmp_path, SITES, "bones").record()
    file_of(tmp_path).write_bytes(b"")
    with pytest.raises(IntegrityError, match="the ledger must reach entry 1, as recorded by the coordinator"):
        SiteLedgers(tmp_path, SITES, "bones").record()


def test_a_witness_accepts_the_ends_of_registered_keys_only():
    ledgers, others = (SiteLedgers(None, SITES, "bones") for _ in range(2))
    witness = ledgers.witness("lyon")
    for source, expected in ((others, set()), (ledgers, {"oslo"})):
        source.ledgers["oslo"].append("release", {"step": "x"})
        statement = source.ledgers["oslo"].head
        witness.receive(_signed({"oslo": statement}))
        assert set(witness.heads) == expected


def _signed(heads):
    from multicentre.privacy.ledger_heads import Statement
    from multicentre.privacy.secure_sum.identity import Identity

    return Statement.signed(heads, Identity.generate()).packed


# Terms


def test_the_terms_of_a_policy_are_json_values_without_paths():
    terms = terms_of(Policy(min_patients=20, methods=("a",), account="/data/a.jsonl"), secure_sum=True, seed=(1, 2))
    assert json.loads(json.dumps(terms)) == terms
    assert terms["policy"]["min_patients"] == 20
    assert terms["policy"]["methods"] == ["a"]
    assert terms["policy"]["account"] == hashlib.sha256(b"/data/a.jsonl").hexdigest()
    assert terms["policy"]["cohorts"] is None
    assert (terms["secure_sum"], terms["seed"]) == (True, [1, 2])


def test_equal_terms_are_written_once():
    ledger = Ledger()
    for terms in ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 1}):
        note_terms(ledger, terms)
        ledger.append("release", {})
    assert [entry.get("terms") for entry in ledger.entries] == [{"a": 1}, None, {"a": 2}, {"a": 1}]


def test_a_run_is_resumed_with_its_terms():
    ledger = Ledger()
    check_terms(ledger, {"a": 1}, "lyon")
    note_terms(ledger, {"a": 1, "b": {"c": [1]}})
    ledger.append("release", {})
    check_terms(ledger, {"a": 1, "b": {"c": [1]}}, "lyon")
    with pytest.raises(IntegrityError) as caught:
        check_terms(ledger, {"a": 2, "b": {}}, "lyon")
    assert caught.value.where == "lyon, ledger"
    assert caught.value.what == (
        "the run must be resumed with its original terms; a was 1 when the run began and is 2 now; "
        "b.c was [1] when the run began and is null now"
    )
    assert caught.value.hint == "Undo the change to resume the run, or start a new run with another folder."


def test_terms_are_held_for_every_site(tmp_path):
    policies = {"lyon": Policy(min_patients=20), "oslo": Policy()}
    ledgers = SiteLedgers(tmp_path, SITES, "bones")
    ledgers.hold_terms(policies, secure_sum=True)
    for site in SITES:
        ledgers.ledgers[site].append("release", {})
        assert ledgers.ledgers[site].last("terms") == terms_of(policies[site], secure_sum=True)
    ledgers.hold_terms(policies, secure_sum=True)
    with pytest.raises(IntegrityError, match=r"^oslo, ledger: .*policy\.min_patients was 10 when the run began"):
        ledgers.hold_terms({**policies, "oslo": Policy(min_patients=5)}, secure_sum=True)
    with pytest.raises(IntegrityError, match=r"^lyon, ledger: .*secure_sum was true when the run began"):
        ledgers.hold_terms(policies, secure_sum=False)


def test_long_values_are_cut_off():
    (text,) = describe_changes({"names": ["x" * 100]}, {"names": "y" * 78})
    assert text == f'names was ["{"x" * 78}... when the run began and is "{"y" * 78}" now'
    assert list(describe_changes({"a": 1}, {"a": 1})) == []
    assert list(describe_changes(1, 2, "a")) == ["a was 1 when the run began and is 2 now"]
    assert list(describe_changes({"b": 1, "a": "é"}, {"a": {"c": 2}})) == [
        'a was "é" when the run began and is {"c": 2} now',
        "b was 1 when the run began and is null now",
    ]
