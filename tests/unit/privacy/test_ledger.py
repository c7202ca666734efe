"""Every change of a ledger shows, and names the entry."""

import csv
import io
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multicentre.federation.errors import IntegrityError
from multicentre.privacy.ledger import GENESIS, Head, Ledger, ledger_as_csv, mend_ledger, read_ledger, verify_ledger

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


def test_any_changed_byte_at_any_position_names_its_entry(tmp_path):
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
def test_removed_inserted_and_swapped_entries_show(tmp_path, change, entry):
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
    with pytest.raises(IntegrityError, match="ends at entry 2, its record says 3"):
        verify_ledger(path, head)


def test_an_existing_ledger_is_continued(tmp_path):
    path = tmp_path / "ledger.jsonl"
    first = filled(path)
    second = filled(path, 2)
    assert second.entries[:3] == first.entries
    assert verify_ledger(path) == second.head
    assert second.head.entries == 5


def test_two_that_write_to_one_file_are_told(tmp_path):
    path = tmp_path / "ledger.jsonl"
    first, second = filled(path), filled(path, 1)
    with pytest.raises(IntegrityError, match="written to by somebody else"):
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
        with pytest.raises(IntegrityError, match=r"entry 3 is cut off.*ledger mend"):
            Ledger(path)
        head = mend_ledger(path)
        *kept, mended = read_ledger(path)
        assert [entry["step"] for entry in kept] == ["fit_0", "fit_1"]
        assert (mended["event"], mended["bytes"]) == ("mended", length)
        assert (tmp_path / "ledger.jsonl.torn").read_bytes() == last[:length]
        assert Ledger(path).head == head == Head(3, mended["hash"])


def test_mending_leaves_a_whole_ledger_alone_and_heals_no_edit(tmp_path):
    path = tmp_path / "ledger.jsonl"
    head = filled(path).head
    before = path.read_bytes()
    assert mend_ledger(path) == head
    assert path.read_bytes() == before
    path.write_bytes(before.replace(b"fit_0", b"fit_9") + b"torn")
    edited = path.read_bytes()
    with pytest.raises(IntegrityError, match="entry 1 was changed"):
        mend_ledger(path)
    assert path.read_bytes() == edited


def test_a_half_written_line_stops_the_ledger(tmp_path):
    ledger = filled(tmp_path / "ledger.jsonl")
    with (tmp_path / "ledger.jsonl").open("ab") as file:
        file.write(b'{"entry":4,')
    with pytest.raises(IntegrityError):
        ledger.append("release", {})
    assert ledger.head.entries == 3


def test_a_missing_ledger_cannot_be_verified(tmp_path):
    with pytest.raises(IntegrityError, match="cannot be read"):
        verify_ledger(tmp_path / "ledger.jsonl")


def test_csv_has_one_row_a_field():
    ledger = filled(n_entries=1)
    ledger.append("refusal", {"study": "s", "reason": 'x: "few", too few'})
    rows = list(csv.DictReader(io.StringIO(ledger_as_csv(ledger.entries))))
    assert [row["event"] for row in rows] == ["release", "refusal"]
    assert (rows[0]["field"], rows[0]["shape"], rows[0]["patients"]) == ("views[é]", "2 x 3", "30")
    assert rows[1]["reason"] == 'x: "few", too few'


@given(
    st.lists(
        st.dictionaries(st.text("abé", min_size=1), st.text(st.characters(exclude_categories=("Cs",)))), max_size=4
    )
)
@settings(max_examples=40, deadline=None)
def test_any_text_survives(tmp_path_factory, facts):
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    ledger = Ledger(path)
    for fact in facts:
        ledger.append("release", {"facts": fact})
    assert Ledger(path).entries == ledger.entries
