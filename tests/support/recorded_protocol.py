"""Record of what peers must agree on: digests of the wire and of each method's steps, by number.

``python tests/support/recorded_protocol.py`` adds the digests of numbers that are not in the record. It refuses to
replace the digest of a number, since installed peers have that number with the digest of the record.
"""

import dataclasses
import hashlib
import json
import socket
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from multicentre.core import calls, messages
from multicentre.core.messages import DTYPES, Message
from multicentre.core.noise_plan import Noise, PlanReview
from multicentre.core.protocol import WIRE_PROTOCOL, protocol_of
from multicentre.core.steps import Acknowledgement, SitePart, step
from multicentre.core.wire import encode
from multicentre.data.flow import FlowPart
from multicentre.engines.remote import batches, packing
from multicentre.engines.remote.opening import AnalystRequest, Opening
from multicentre.engines.remote.packing import Reply, Request
from multicentre.engines.remote.socket import Reason, Unreachable, send_frame
from multicentre.errors import RefusedByPolicy
from multicentre.estimator.base import find_estimator
from multicentre.estimator.registry import METHODS, PARTS, find_part
from multicentre.privacy.ledger_heads import Head, Statement, signed_text
from multicentre.privacy.secure_sum.messages import Invitation, Masked
from multicentre.privacy.secure_sum.site import MaskingKeys
from multicentre.studies import read_study
from multicentre.studies.terms import digest_of
from multicentre.validation.folds.subgroups import SubgroupFolds
from multicentre_sites.deployment import analyst_link
from multicentre_sites.deployment.analyst_link import Order
from multicentre_sites.deployment.analysts import AnalystCard
from support.real_sites import Hospitals
from support.studies_toy import TOY, write_study

RECORD = Path(__file__).parents[1] / "unit" / "core" / "recorded_protocol.json"
COMMAND = f"python {'/'.join(Path(__file__).parts[-3:])}"
WIRE, IN_FLOWER = "wire", "wire in Flower"
DISTRIBUTIONS = ("multicentre", "multicentre-papers")
_OF_ALL_STUDIES = (FlowPart, SubgroupFolds, PlanReview, MaskingKeys)
_LENGTH = 16  # hexadecimal digits; a change is detected with a probability of 1 - 2**-64
_DECLARED = (
    *(Request, Reply, Opening, AnalystRequest, Head, Statement, Order, AnalystCard),
    *(calls.Call, calls.StateCommand, calls.Mask, calls.Selection, calls.Place, calls.Entry, Noise),
)


Sample = dataclasses.make_dataclass(
    "Sample",
    [
        ("number", float, messages.number("number")),
        ("count", int, messages.count("count")),
        ("flag", bool, messages.flag("flag")),
        ("text", str, messages.text("text")),
        ("texts", tuple, messages.texts("texts")),
        ("keyed", dict, messages.arrays("arrays by name", ("n", "m"))),
        *((name, np.ndarray, messages.array("values", ("n",), dtype=name)) for name in DTYPES),
    ],
    bases=(Message,),
    frozen=True,
)


class SamplePart(SitePart):
    """Has one step."""

    method = "sample"

    @step(releases=Acknowledgement)
    def take(self, request: Sample) -> Acknowledgement:
        """Take a message."""
        return Acknowledgement()


def wire_content() -> dict[str, Any]:
    """Return declarations and bytes of requests, replies and signed texts."""
    arrays = {name: np.arange(3).astype(name) for name in DTYPES}
    message = Sample(0.1, 3, True, "é", ("a", "b"), {"view": np.eye(2)}, **arrays)
    taking = SamplePart.steps()["take"]
    selection = calls.Selection("folds", (0, 1), calls.Selection("outer", (2,)))
    call = calls.Call(
        *("study", "session", 1, taking, message, ("lyon", "oslo")),
        mask=calls.Mask("agreement", 1, 3, 1, True),
        noise=Noise("gaussian", {"total": 1.5}),
        selection=selection,
        place=calls.Place(1, (calls.Entry(0, 0, taking, ("lyon",), "d" * 64, "e" * 64),), (("lyon", "f" * 64),)),
    )
    head = Head(3, "a" * 64, "study", "b" * 64, "c" * 128)
    opening = Opening("run", 1, "study", "1" * 64, ("lyon", "oslo"), True, None, {"wire": "1"})
    request = AnalystRequest("ada", "2" * 64, 1, "3" * 128)
    command = calls.StateCommand("keep", "session", SamplePart, "rounds", 1, selection)
    error = RefusedByPolicy("what", where="lyon", hint="hint")
    packed = {
        "message": encode(message),
        "request": Request("call", "run", 1, 2, ({"action": "keep"},), b"body", "heads").pack(),
        "command": packing.pack_command(command),
        "nonces": packing.pack_nonces({"lyon": "5"}),
        "call": calls.encode_call(call),
        "short call": calls.encode_call(dataclasses.replace(call, mask=None, noise=None, selection=None, place=None)),
        "reply": Reply(2, "answer", b"body", head).pack(),
        "reply without head": Reply(2, "answer", b"body").pack(),
        "error": packing.pack_error(2, error).pack(),
        "several": batches.pack_several([b"a", b"bc"]),
        "outcomes": batches.pack_outcomes(2, [Reply(2, "answer", b"a")]).pack(),
        "heads": Statement({"lyon": head}, "6" * 64, "7" * 128).packed,
        "opening": dataclasses.replace(opening, request=request).pack(),
        "opening to sign": analyst_link.pack_opening(opening),
        "order": Order(AnalystCard("ada", "2" * 64), "4" * 32, "[study]").pack(),
        "frame": _frame_of({"kind": "request"}, b"body"),
    }
    invitation = Invitation("study", "session", "agreement", ("lyon", "oslo", "porto"), 3, 2, 1)
    signed = {
        "opening": opening.statement("ada", "2" * 64, 1),
        "end of a ledger": signed_text("study", 3, "a" * 64),
        "keys": invitation.signed_by("lyon", "run", b"channel", b"keys", b"checks", "fields", np.arange(2)),
        "survivors": invitation.list_content(1, ("lyon", "oslo", "porto"), b"digest"),
        "labels": [*invitation.label_of_keys(), *invitation.label(1, "step", "transcript")],
    }
    return {
        "declared": {one.__name__: {f.name: str(f.type) for f in dataclasses.fields(one)} for one in _DECLARED},
        "kinds": {name: list(getattr(packing, name)) for name in ("_KINDS", "_ACTIONS", "_REPLIES")},
        "masked": {name: dataclasses.asdict(one) for name, one in Masked.declarations().items()},
        "greeting": sorted(analyst_link._hello("", 1)),
        "opened": _names_of_facts(),
        "packed": packed,
        "signed": signed,
    }


def flower_content() -> dict[str, Any]:
    """Return the names within the records of Flower in which requests and replies travel."""
    from multicentre_sites.flower import records

    packed = [records.pack_payload(bytes(size)) for size in (1, 2 * 10**6)]
    packed += [records.pack_failure(Unreachable(reason)) for reason in get_args(Reason)]
    names = [{name: sorted(record) for name, record in each.items()} for each in packed]
    return {"type": records.MESSAGE_TYPE, "records": names, "reasons": list(get_args(Reason))}


def parts() -> dict[str, type[SitePart]]:
    """Return every site part of our distributions by its name among digests."""
    kinds = [find_part(name) for name, one in PARTS.items() if one.distribution in DISTRIBUTIONS]
    for name in (name for name, one in METHODS.items() if one.distribution in DISTRIBUTIONS):
        kind = find_estimator(name)
        kinds += [one for one in (kind.site_part, kind.aligned_by) if one is not None]
    return {kind.method: kind for kind in (*kinds, *_OF_ALL_STUDIES)}


def current() -> dict[str, tuple[int, str]]:
    """Return number and digest of the wire, and of every method and part, as installed."""
    of_wire = {WIRE: (WIRE_PROTOCOL, digest(wire_content()))}
    if find_spec("flwr") is not None:
        of_wire[IN_FLOWER] = (WIRE_PROTOCOL, digest(flower_content()))
    return of_wire | {
        name: (part.revision, protocol_of({part: part.steps()})[name]) for name, part in sorted(parts().items())
    }


def digest(content: object) -> str:
    """Return a digest of plain values."""
    packed = json.dumps(content, sort_keys=True, default=bytes.hex).encode()
    return hashlib.sha256(packed).hexdigest()[:_LENGTH]


def fault(name: str, number: int, present: str, recorded: Mapping[str, str]) -> str:
    """Return what to do if a digest is not the recorded one of its number; empty if it is."""
    if recorded.get(str(number)) == present:
        return ""
    newest = max(map(int, recorded), default=0)
    if number > newest:
        return f"{name}: {number} is not in the record: {COMMAND}"
    raised = "WIRE_PROTOCOL in core/protocol.py" if name in (WIRE, IN_FLOWER) else "`revision` of its site part"
    return (
        f"{name}: the declarations are not those of number {number}, which installed peers have. Raise {raised} to "
        f"{newest + 1}, name it in CHANGELOG.md, and record it: {COMMAND}"
    )


def _names_of_facts() -> list[str]:
    """Return the names of the facts in the reply to an opening."""
    with tempfile.TemporaryDirectory() as folder, patch.dict(METHODS, {"toy": TOY}):
        hospitals = Hospitals(Path(folder) / "sites", write_study(Path(folder)))
        study = read_study(hospitals.study_path)
        opening = Opening("run", 0, study.name, digest_of(study), hospitals.names, study.masked)
        packed = hospitals.answer("lyon", Request("open", "run", 0, 0, body=opening.pack()).pack())
        return sorted(Reply.unpack(packed).facts)


def _frame_of(header: Mapping[str, object], body: bytes) -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_frame(ours, header, body)
        ours.close()
        return b"".join(iter(lambda: theirs.recv(2**16), b""))


def main() -> None:
    """Add the digests of numbers that are not in the record, and remove methods that are gone."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name, (number, present) in (now := current()).items():
        recorded = record.setdefault(name, {})
        if number > max(map(int, recorded), default=0):
            recorded[str(number)] = present
        elif message := fault(name, number, present, recorded):
            sys.exit(message)
    RECORD.write_text(json.dumps({name: record[name] for name in now}, indent=1) + "\n")


if __name__ == "__main__":
    main()
