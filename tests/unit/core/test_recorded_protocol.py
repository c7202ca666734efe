"""Numbers of the wire and of methods are raised when declarations change: peers of two releases compare only these."""

import json

import pytest

from support import recorded_protocol
from support.recorded_protocol import IN_FLOWER, RECORD, WIRE, current, digest, fault, wire_content


@pytest.fixture(scope="module")
def now():
    return current()


@pytest.fixture(scope="module")
def record():
    return json.loads(RECORD.read_text())


@pytest.mark.slow
def test_declarations_are_those_recorded_for_their_numbers(now, record):
    faults = [fault(name, *now[name], record.get(name, {})) for name in now]
    assert "\n".join(filter(None, faults)) == ""


@pytest.mark.slow
def test_the_record_names_every_method_and_no_other(now, record):
    assert set(record) - set(now) <= {IN_FLOWER}, f"run {recorded_protocol.COMMAND}"


@pytest.mark.parametrize(
    ("name", "number", "present", "told"),
    [
        ("fed-cox", 2, "b", ""),
        ("fed-cox", 2, "c", "Raise `revision` of its site part to 3"),
        ("fed-cox", 1, "b", "Raise `revision` of its site part to 3"),
        ("fed-cox", 3, "c", "3 is not in the record"),
        (WIRE, 2, "c", "Raise WIRE_PROTOCOL in core/protocol.py to 3"),
    ],
)
def test_a_changed_declaration_is_told_with_what_to_do(name, number, present, told):
    message = fault(name, number, present, {"1": "a", "2": "b"})
    assert told in message
    assert bool(message) == bool(told)


@pytest.mark.parametrize("raised", [False, True])
def test_the_record_keeps_what_installed_peers_have(tmp_path, monkeypatch, raised):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"fed-cox": {"1": "a"}, "gone": {"1": "a"}}))
    monkeypatch.setattr(recorded_protocol, "RECORD", path)
    monkeypatch.setattr(recorded_protocol, "current", lambda: {"fed-cox": (1 + raised, "b")})
    if raised:
        recorded_protocol.main()
        assert json.loads(path.read_text()) == {"fed-cox": {"1": "a", "2": "b"}}
    else:
        with pytest.raises(SystemExit, match="Raise `revision`"):
            recorded_protocol.main()
        assert "b" not in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("signed_text", lambda *_: b"other"),
        ("send_frame", lambda connection, *_: connection.sendall(b"other")),
        ("_DECLARED", ()),
        ("_names_of_facts", lambda: ["more"]),
    ],
)
def test_a_change_of_the_wire_changes_its_digest(monkeypatch, name, other):
    before = digest(wire_content())
    assert digest(wire_content()) == before
    monkeypatch.setattr(recorded_protocol, name, other)
    assert digest(wire_content()) != before
