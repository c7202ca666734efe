"""Every change of a ledger shows, and names the entry."""

import csv
import hashlib
import io
import json
import os
import stat
import threading
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import IntegrityError
from multicentre.privacy.ledger import (
    GENESIS,
    Head,
    Ledger,
    entries_of_all,
    ledger_as_csv,
    read_ledger,
    repair_ledger,
    verify_ledger,
)
from multicentre.privacy.secure_sum.identity import Identity
from support.examples import examples

FIELD = {"field": "views[é]", "shape": [2, 3], "bytes": 48, "patients": 30, "sha256": "0" * 64}


def filled(path=None, n_entries=3):
    ledger = Ledger(path)
    for number in range(n_entries):
        ledger.append("release", {"study": "s", "step": f"fit_{number}", "fields": [FIELD]})
    return ledger


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


def test_a_ledger_is_chained_from_the_start(tmp_path):
    ledger = filled(tmp_path / "ledger.jsonl")
    assert verify_ledger(tmp_path / "ledger.jsonl") == ledger.head == Head(3, ledger.entries[-1]["hash"])
    assert [entry["previous"] for entry in ledger.entries] == [GENESIS, *(e["hash"] for e in ledger.entries[:-1])]
    assert tuple(read_ledger(tmp_path / "ledger.jsonl")) == ledger.entries
    assert Ledger().head == Head(0, GENESIS)


@pytest.mark.slow
def test_any_changed_byte_is_detected_and_its_entry_named(tmp_path):
    path = tmp_path / "ledger.jsonl"
    for number in range(2):
        Ledger(path).append("refusal", {"n": number})
    content = path.read_bytes()
    for place in range(len(content)):
        entry = 1 + content[:place].count(b"\n")
        for other in {content[place] ^ 1, content[place] ^ 32, ord("\n")} - {content[place]}:
            path.write_bytes(content[:place] + bytes([other]) + content[place + 1 :])
            with pytest.raises(IntegrityError, match=rf"entry {entry} ") as caught:
                verify_ledger(path)
            assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        (lambda lines: lines[1:], 1),
        (lambda lines: [lines[0], lines[2]], 2),
        (lambda lines: [lines[1], lines[0], lines[2]], 1),
        (lambda lines: [lines[0], lines[2], lines[1]], 2),
        (lambda lines: [lines[0], lines[0], *lines[1:]], 2),
        (lambda lines: [*lines, lines[2]], 4),
        (lambda lines: [*lines, b"\n"], 4),
        (lambda lines: [*lines, b"[]\n"], 4),
        (lambda lines: [*lines, b"[" * 100_000 + b"\n"], 4),
        (lambda lines: [*lines, b'{"entry":"\\ud800"}\n'], 4),
        (lambda lines: [lines[0], lines[1].replace(b'"fit_1"', b'"fit_1" '), lines[2]], 2),
        (lambda lines: [lines[0], lines[1][:-30], lines[2]], 2),
    ],
)
def test_removed_inserted_and_swapped_entries_are_detected(tmp_path, change, entry):
    path = tmp_path / "ledger.jsonl"
    filled(path)
    path.write_bytes(b"".join(change(lines_of(path))))
    with pytest.raises(IntegrityError, match=f"entry {entry} "):
        verify_ledger(path)
    with pytest.raises(IntegrityError, match=f"entry {entry} "):
        Ledger(path)


def test_entries_removed_from_the_end_show_against_the_head(tmp_path):
    path = tmp_path / "ledger.jsonl"
    head = filled(path).head
    path.write_bytes(b"".join(lines_of(path)[:2]))
    assert verify_ledger(path).entries == 2
    with pytest.raises(IntegrityError, match="must end at entry 3, as recorded; it ends at entry 2"):
        verify_ledger(path, head)


def test_an_existing_ledger_is_continued(tmp_path):
    path = tmp_path / "ledger.jsonl"
    first = filled(path)
    second = filled(path, 2)
    assert second.entries[:3] == first.entries
    assert verify_ledger(path) == second.head
    assert second.head.entries == 5


def test_the_memory_of_a_process_does_not_grow_with_its_file(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append("release", {"step": "first"})
    tracemalloc.start()
    try:
        for number in range(300):
            ledger.append("release", {"step": "x" * 1000, "number": number})
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 50_000  # the entries have more than 300,000 bytes
    assert [entry["number"] for entry in ledger.entries[1:]] == list(range(300))


def test_entries_of_a_file_that_was_rewritten_are_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = filled(path)
    path.unlink()
    another = Ledger(path)
    for number in range(4):
        another.append("release", {"step": f"other_{number}"})
    with pytest.raises(IntegrityError, match="entry 3 of the ledger must be the one"):
        _ = ledger.entries


def test_two_that_write_to_one_file_are_told(tmp_path):
    path = tmp_path / "ledger.jsonl"
    first, second = filled(path), filled(path, 1)
    with pytest.raises(IntegrityError, match="another process wrote"):
        first.append("release", {})
    assert verify_ledger(path) == second.head


def test_the_record_can_be_written_elsewhere(tmp_path):
    ledger = filled()
    ledger.write(tmp_path / "copy" / "ledger.jsonl")
    assert verify_ledger(tmp_path / "copy" / "ledger.jsonl") == ledger.head


def test_appends_from_many_threads_make_one_chain(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    threads = [
        threading.Thread(target=lambda: [ledger.append("release", {"n": n}) for n in range(40)]) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verify_ledger(tmp_path / "ledger.jsonl") == ledger.head
    assert ledger.head.entries == 240


def test_a_fact_that_cannot_be_written_leaves_the_ledger_whole(tmp_path):
    ledger = filled(tmp_path / "ledger.jsonl")
    for fact in (object(), float("nan"), "\ud800"):
        with pytest.raises((TypeError, ValueError)):
            ledger.append("release", {"fact": fact})
    ledger.append("release", {})
    assert verify_ledger(tmp_path / "ledger.jsonl").entries == 4


def test_a_torn_last_line_is_reported_and_can_be_mended_at_every_length(tmp_path):
    path = tmp_path / "ledger.jsonl"
    filled(path)
    *whole, last = lines_of(path)
    for length in [1, 2, *range(3, len(last) - 1, 17), len(last) - 1]:
        path.write_bytes(b"".join(whole) + last[:length])
        with pytest.raises(IntegrityError, match=r"every entry must be complete.*ledger repair"):
            Ledger(path)
        head = repair_ledger(path)
        *kept, mended = read_ledger(path)
        assert [entry["step"] for entry in kept] == ["fit_0", "fit_1"]
        assert (mended["event"], mended["bytes"]) == ("repaired", length)
        assert (tmp_path / "ledger.jsonl.torn").read_bytes() == last[:length]
        assert Ledger(path).head == head == Head(3, mended["hash"])


def test_mending_leaves_a_whole_ledger_alone_and_heals_no_edit(tmp_path):
    path = tmp_path / "ledger.jsonl"
    head = filled(path).head
    before = path.read_bytes()
    assert repair_ledger(path) == head
    assert path.read_bytes() == before
    path.write_bytes(before.replace(b"fit_0", b"fit_9") + b"torn")
    edited = path.read_bytes()
    with pytest.raises(IntegrityError, match="entry 1 must match its hash"):
        repair_ledger(path)
    assert path.read_bytes() == edited


def test_a_half_written_line_stops_the_ledger(tmp_path):
    ledger = filled(tmp_path / "ledger.jsonl")
    with (tmp_path / "ledger.jsonl").open("ab") as file:
        file.write(b'{"entry":4,')
    with pytest.raises(IntegrityError):
        ledger.append("release", {})
    assert ledger.head.entries == 3


def test_a_missing_ledger_cannot_be_verified(tmp_path):
    with pytest.raises(IntegrityError, match=r"the ledger cannot be read \(No such file or directory\)"):
        verify_ledger(tmp_path / "ledger.jsonl")


def test_csv_has_the_columns_of_the_page_and_lines_of_its_own():
    entry = Ledger().append(
        "release", {"study": "s", "method": "m", "step": "x", "protection": "unmasked", "session": "0"}
    )
    head, row = ledger_as_csv([{**entry, "epsilon": 1.5, "delta": 1e-5}]).removesuffix("\n").split("\n")
    assert head == (
        "entry,time,event,study,method,step,protection,field,shape,bytes,records,patients,epsilon,delta,reason,hash"
    )
    assert row == f"1,{entry['time']},release,s,m,x,unmasked,,,,,,1.5,1e-05,,{entry['hash']}"


def test_csv_has_one_row_a_field():
    ledger = filled(n_entries=1)
    ledger.append("refusal", {"study": "s", "reason": 'x: "few", too few'})
    rows = list(csv.DictReader(io.StringIO(ledger_as_csv(ledger.entries))))
    assert [row["event"] for row in rows] == ["release", "refusal"]
    assert (rows[0]["field"], rows[0]["shape"], rows[0]["patients"]) == ("views[é]", "2 x 3", "30")
    assert rows[1]["reason"] == 'x: "few", too few'


@pytest.mark.parametrize("text", ["=1", "\uff1d1", "\uff0b1", "\u2212 1", ";=1", "a;=1", "a;\uff201", " =1", "a\n=1"])
@pytest.mark.parametrize("separator", [",", ";"])
def test_no_cell_of_the_csv_is_a_formula_whatever_separates_cells(text, separator):
    page = ledger_as_csv([{"entry": 1, "reason": text, "fields": [{"field": text}]}])
    cells = [cell.lstrip()[:1] for row in csv.reader(io.StringIO(page), delimiter=separator) for cell in row]
    assert not {"=", "+", "-", "@", "\uff1d", "\uff0b", "\uff20", "\u2212"} & set(cells)


@given(
    st.lists(
        st.dictionaries(st.text("abé", min_size=1), st.text(st.characters(exclude_categories=("Cs",)))), max_size=4
    )
)
@examples(40)
def test_any_text_survives(tmp_path_factory, facts):
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    ledger = Ledger(path)
    for fact in facts:
        ledger.append("release", {"facts": fact})
    assert Ledger(path).entries == ledger.entries


def test_an_entry_holds_its_number_its_time_and_the_hash_of_all_else():
    entry = Ledger().append("release", {"b": 1, "a": "é"})
    assert list(entry) == ["entry", "time", "event", "b", "a", "previous", "hash"]
    content = json.dumps({k: v for k, v in entry.items() if k != "hash"}, ensure_ascii=False, separators=(",", ":"))
    assert entry["hash"] == hashlib.sha256(content.encode()).hexdigest()
    assert (entry["entry"], entry["event"], entry["previous"]) == (1, "release", GENESIS)
    moment = datetime.fromisoformat(entry["time"])
    assert moment.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - moment) < timedelta(hours=1)
    assert len(entry["time"]) == len("2026-01-31T12:00:00.000+00:00")


@pytest.mark.skipif(os.name != "posix", reason="files have modes on POSIX systems only")
def test_a_ledger_and_what_is_set_aside_are_for_the_owner(tmp_path):
    path = tmp_path / "site" / "ledger.jsonl"
    filled(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(path.read_bytes() + b"torn")
    repair_ledger(path)
    modes = {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    assert modes == {0o600}


def test_a_durable_entry_is_on_the_disk_before_it_is_returned(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    Ledger(tmp_path / "a.jsonl").append("release", {})
    assert synced == []
    Ledger(tmp_path / "b.jsonl", durable=True).append("release", {})
    assert len(synced) == 1


def test_a_piece_that_was_set_aside_is_described(tmp_path):
    path = tmp_path / "ledger.jsonl"
    filled(path)
    path.write_bytes(path.read_bytes() + b'{"entry":4')
    repair_ledger(path)
    last = list(read_ledger(path))[-1]
    assert (last["bytes"], last["sha256"]) == (10, hashlib.sha256(b'{"entry":4').hexdigest())


def test_errors_of_a_ledger_name_its_file_and_a_remedy(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with pytest.raises(IntegrityError) as caught:
        verify_ledger(path)
    assert (caught.value.where, caught.value.what) == (
        str(path),
        "the ledger cannot be read (No such file or directory)",
    )
    ledger = filled(path)
    with pytest.raises(IntegrityError) as caught:
        verify_ledger(path, Head(2, ledger.head.hash))
    assert caught.value.hint == "Entries were removed from the end or added to it."
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(IntegrityError) as caught:
        ledger.append("release", {})
    assert (caught.value.where, caught.value.hint) == (str(path), "Use the folder in only one federation at a time.")
    path.write_bytes(b"{}\n")
    with pytest.raises(IntegrityError) as caught:
        verify_ledger(path)
    assert (caught.value.where, caught.value.what) == (
        str(path),
        "entry 1 must follow the previous entry; got another predecessor",
    )
    assert caught.value.hint == "Compare the ledger with a copy. Entries after this one are unreliable."


def test_a_head_of_the_same_length_with_another_hash_is_another_ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    head = filled(path).head
    assert verify_ledger(path, head) == head
    with pytest.raises(IntegrityError):
        verify_ledger(path, Head(3, GENESIS))


def test_a_ledger_that_cannot_be_written_says_so_and_does_not_grow(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    ledger = filled(path)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(IntegrityError) as caught:
        ledger.append("release", {})
    assert caught.value.what == "the ledger cannot be written (No space left on device); nothing was released"
    assert (caught.value.where, caught.value.hint) == (
        str(path),
        "Free disk space, or make the file writable for its owner.",
    )
    monkeypatch.undo()
    assert ledger.head.entries == 3
    assert ledger.append("release", {})["entry"] == 4


def test_the_repair_is_of_the_study_of_the_entries_unless_another_is_named(tmp_path):
    for number, (study, named, expected) in enumerate(
        [("bones", "", "bones"), ("bones", "other", "other"), ("", "", None), ("", "named", "named")]
    ):
        path = tmp_path / f"{number}.jsonl"
        Ledger(path, study=study).append("release", {"step": "x"})
        path.write_bytes(path.read_bytes() + b"{torn")
        repair_ledger(path, study=named)
        assert list(read_ledger(path))[-1].get("study") == expected


def test_all_ledgers_of_a_folder_are_read_without_their_truncated_entries(tmp_path):
    for name in ("b", "a"):
        filled(tmp_path / f"{name}.jsonl", 2)
    (tmp_path / "notes.txt").write_text("no ledger")
    (tmp_path / "b.jsonl").write_bytes((tmp_path / "b.jsonl").read_bytes() + b"{torn")
    entries = list(entries_of_all(tmp_path))
    assert [entry["entry"] for entry in entries] == [1, 2, 1, 2]
    assert entries[:2] == list(read_ledger(tmp_path / "a.jsonl"))
    (tmp_path / "a.jsonl").write_bytes(b"[]\n")
    with pytest.raises(IntegrityError, match="entry 1 "):
        list(entries_of_all(tmp_path))


def test_the_end_of_a_signed_ledger_names_study_and_key():
    signer = Identity.generate()
    for study in ("bones", ""):
        ledger = Ledger(signer=signer, study=study)
        entry = ledger.append("release", {})
        assert ledger.head == Head(1, entry["hash"], study, signer.public.hex(), entry["signature"])
        assert ledger.head.is_signed
