"""What an agent remembers across its own death."""

import pytest

from multicentre_sites.flower.records import Memory


def test_what_was_kept_is_there_again(tmp_path) -> None:
    memory = Memory.open(tmp_path / "memory.json")
    memory.keep(node_id=2**63 + 1)
    memory.begin(b"\x00message")
    again = Memory.open(tmp_path / "memory.json")
    assert (again.node_id, again.under_way) == (2**63 + 1, b"\x00message")
    again.end()
    assert Memory.open(tmp_path / "memory.json").under_way is None
    assert (tmp_path / "memory.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", ["", "{", "[]", '{"node_id": "seven"}', '{"under_way": "!"}', '{"under_way": 3}'])
def test_what_cannot_be_read_is_forgotten(content: str, tmp_path) -> None:
    path = tmp_path / "memory.json"
    path.write_text(content)
    memory = Memory.open(path)
    assert (memory.node_id, memory.under_way) == (None, None)


def test_without_a_file_nothing_is_written(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Memory.open(None).begin(b"message")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_costs_time_only(tmp_path) -> None:
    """A full disk must not lose the request at hand: its reply names the disk."""
    (tmp_path / "file").write_text("")
    memory = Memory.open(tmp_path / "file" / "memory.json")
    memory.begin(b"message")
    assert memory.under_way == b"message"
