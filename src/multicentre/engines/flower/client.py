"""A site behind a stock SuperNode: letters come as Flower messages, and no exception's text leaves with a reply."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from multicentre.engines.flower.records import LETTER_LIFE_S, pack_failure, pack_letter, unpack_letter
from multicentre.engines.remote.carrier import Unreachable
from multicentre.engines.remote.socket import ask_socket
from multicentre.federation.errors import MessageError

Handle = Callable[[bytes], bytes | Unreachable]
RESIDENT = "resident"


def make_client_app(handle: Handle | None = None) -> ClientApp:
    """Return a ClientApp that answers letters.

    Parameters
    ----------
    handle : callable, optional
        What answers a letter. Without it, letters go to the site's resident process, at the socket whose path the
        SuperNode was given as ``--node-config 'resident="..."'``.
    """
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        return Message(_answered(message, context, handle), reply_to=message)

    return app


def relay_to(path: Path, wait_s: float = LETTER_LIFE_S) -> Handle:
    """Return what passes a letter to the process at the socket `path`, and its reply back; it never raises."""

    def relay(letter: bytes) -> bytes | Unreachable:
        try:
            return ask_socket(path, letter, wait_s)
        except (OSError, MessageError):
            return Unreachable("stopped")

    return relay


def _answered(message: Message, context: Context, handle: Handle | None) -> RecordDict:
    try:
        reply = (handle or relay_to(Path(str(context.node_config[RESIDENT]))))(unpack_letter(message.content))
        return pack_failure(reply) if isinstance(reply, Unreachable) else pack_letter(reply)
    except Exception:  # Flower would send the exception's text to the coordinator
        return pack_failure(Unreachable("stopped"))
