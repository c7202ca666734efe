"""What an agent must still know when its process was killed: its number, and the message it was at."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from multicentre.federation.storage import write_atomically


@dataclass
class Memory:
    """A small file that outlives the process, not the machine: nothing breaks where it is lost.

    Parameters
    ----------
    path : Path, optional
        The file; without one nothing is remembered.

    Attributes
    ----------
    node_id : int or None
        The number that the coordinator knows the site by.
    under_way : bytes or None
        The message that was taken and not answered yet, without its content.

    Examples
    --------
    >>> memory = Memory(None)
    >>> memory.keep(node_id=7)
    >>> memory.node_id
    7
    """

    path: Path | None
    node_id: int | None = None
    under_way: bytes | None = None

    @classmethod
    def open(cls, path: Path | None) -> Memory:
        """Return what `path` holds; an unreadable file is an empty one."""
        try:
            kept = json.loads(path.read_bytes()) if path else {}
            under_way = base64.b64decode(kept["under_way"], validate=True) if kept.get("under_way") else None
            node_id = kept.get("node_id")
            return cls(path, node_id if isinstance(node_id, int) else None, under_way)
        except (OSError, ValueError, TypeError, AttributeError):
            return cls(path)

    def keep(self, *, node_id: int | None) -> None:
        """Remember the site's number, or forget it."""
        self.node_id = node_id
        self._write()

    def begin(self, message: bytes) -> None:
        """Remember that this message was taken."""
        self.under_way = message
        self._write()

    def end(self) -> None:
        """Forget the message that was taken: it is answered."""
        self.under_way = None
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        under_way = base64.b64encode(self.under_way).decode() if self.under_way else None
        content = json.dumps({"node_id": self.node_id, "under_way": under_way}).encode()
        # Not durable: twice a message would be slow, and what a power cut takes away only costs half a minute.
        write_atomically(self.path, content, mode=0o600, durable=False)
