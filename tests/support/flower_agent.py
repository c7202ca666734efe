"""A site's process for tests: an agent that sends letters back, turns them, sleeps, breaks or dies as they say."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from multicentre.errors import MulticentreError
from multicentre_sites.flower.agent import Agent

_PATIENCE_S = "600"  # a busy coordinator may take minutes to notice that a process is gone

_SECRET = "patient 12345 has 7.77"
_refused: dict[bytes, bytes] = {}


def refuse(letter: bytes, error: MulticentreError) -> bytes:
    _refused[letter] = f"refused: {error}".encode()
    return _refused[letter]


def handle(letter: bytes) -> bytes:
    if letter in _refused:
        return _refused[letter]
    word, _, argument = letter[:40].partition(b" ")
    if word == b"sleep":
        print("At a letter.", flush=True)
        time.sleep(float(argument))
    elif word == b"raise":
        raise ValueError(_SECRET)
    elif word == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == b"turn":
        return letter[::-1]
    return letter


def main(address: str, authority: str, key: str, approved: str) -> int:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    agent = Agent(
        address,
        root_certificates=Path(authority),
        private_key=Path(key),
        handle=handle,
        refuse=refuse,
        approved=approved.split(",").__contains__,
        report=lambda line: print(line, flush=True),
        memory=None if "AGENT_FORGETS" in os.environ else Path(f"{key}.json"),
        patience_s=float(os.environ.get("AGENT_PATIENCE_S", _PATIENCE_S)),
    )
    try:
        agent.run(stop)
    except MulticentreError as error:
        print(error, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
