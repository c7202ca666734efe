"""Carrier of requests over Flower's public Grid, to sites identified by their public keys."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from multicentre.engines.remote.socket import Reason, Unreachable
from multicentre.errors import ConfigurationError, MessageError
from multicentre_sites.flower.handshake import canonical_key, names_by_key
from multicentre_sites.flower.records import (
    LOST,
    MESSAGE_TYPE,
    NOT_APPROVED,
    REQUEST_LIFETIME_S,
    STOPPED,
    pack_payload,
    unpack_reply,
)

_SHORTEST_POLL_S = 0.05  # a poll costs the SuperLink as much as a request
# The last reply is not expected before this share of the shortest of the recent round trips.
_SURE_SHARE, _RECENT = 0.75, 4
_LONGEST_POLL_S = 0.5  # small against steps that take minutes
_POLL_SHARE = 0.05  # a reply is received at most 5 % late
# Flower's error codes for messages without a reply.
_REASONS: Mapping[int, Reason] = {
    1: "stopped",
    2: "stopped",
    LOST: "lost",
    4: "lost",
    5: "offline",
    6: "stopped",
    NOT_APPROVED: "unverified",
    STOPPED: "stopped",
}


class GridCarrier:
    """Carries requests to sites over the Grid of a Flower app.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    sites : mapping from name to public key
        Keys as OpenSSH lines or PEM. Nodes with other keys receive nothing.
    life_s : float
        Lifetime of a request and its reply in seconds.

    Raises
    ------
    ConfigurationError
        A key cannot be read, or two sites have the same key.
    """

    def __init__(self, grid: Grid, sites: Mapping[str, str], *, life_s: float = REQUEST_LIFETIME_S) -> None:
        self._grid = grid
        self._names = names_by_key(sites)
        self._sites = tuple(sites)
        self._life_s = life_s
        self._nodes: dict[str, int] = {}
        self._under_way: dict[str, str] = {}
        self._sent = 0.0
        self._turnarounds_s: deque[float] = deque(maxlen=_RECENT)
        self._outcomes: dict[str, bytes | Unreachable] = {}

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of `sites`."""
        return self._sites

    @property
    def under_way(self) -> bool:
        """True while a request has neither a reply nor a failure."""
        return bool(self._under_way)

    @property
    def pause_s(self) -> float:
        """Pause before the next poll.

        A poll costs the SuperLink as much as a request. None is made before most of the shortest recent round trip is
        over; later, the pauses are a small share of the time waited.
        """
        waited_s = time.monotonic() - self._sent
        early_s = _SURE_SHARE * min(self._turnarounds_s, default=0.0) - waited_s
        return min(max(_POLL_SHARE * waited_s, _SHORTEST_POLL_S, early_s), _LONGEST_POLL_S)

    def send(self, requests: Mapping[str, bytes]) -> None:
        """Send one request to each of these sites; give up earlier requests to them."""
        if unknown := sorted(set(requests) - set(self._sites)):
            raise ConfigurationError(
                f"requests must go to sites of the register; got {len(unknown)} other", where=", ".join(unknown)
            )
        self._give_up(requests)
        if not requests.keys() <= self._nodes.keys():
            self._find_nodes()
        self._outcomes |= {site: Unreachable("offline") for site in requests if site not in self._nodes}
        self._push({site: request for site, request in requests.items() if site in self._nodes})
        self._sent = time.monotonic()

    def collect(self, wait_s: float) -> dict[str, bytes | Unreachable]:
        """Return the outcomes since the last call, by site; wait at most `wait_s` seconds for the first."""
        end = time.monotonic() + wait_s
        self._poll()
        while not self._outcomes and self._under_way and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, self.pause_s))
            self._poll()
        outcomes, self._outcomes = self._outcomes, {}
        return outcomes

    def close(self) -> None:
        """Give up all requests; the Grid belongs to Flower and stays open."""
        self._give_up(self._sites)

    def _give_up(self, sites: Iterable[str]) -> None:
        given_up = set(sites)
        self._under_way = {number: site for number, site in self._under_way.items() if site not in given_up}
        self._outcomes = {site: outcome for site, outcome in self._outcomes.items() if site not in given_up}

    def _find_nodes(self) -> None:
        keys = ((canonical_key(node.public_key), node.node_id) for node in self._grid.get_nodes())
        self._nodes = {self._names[key]: number for key, number in keys if key in self._names}

    def _push(self, requests: Mapping[str, bytes]) -> None:
        if not requests:
            return
        packed: dict[bytes, RecordDict] = {}
        for request in requests.values():
            if request not in packed:
                packed[request] = pack_payload(request)
        messages = [
            Message(packed[request], self._nodes[site], MESSAGE_TYPE, ttl=self._life_s)
            for site, request in requests.items()
        ]
        numbers = list(self._grid.push_messages(messages)) or [""] * len(messages)
        for site, number in zip(requests, numbers, strict=True):
            if number:
                self._under_way[number] = site
            else:
                self._fail(site, "lost")

    def _poll(self) -> None:
        if not self._under_way:
            return
        for reply in self._grid.pull_messages(list(self._under_way)):
            site = self._under_way.pop(reply.metadata.reply_to_message_id, None)
            if site is None:
                continue
            if reply.has_error():
                self._fail(site, _REASONS.get(reply.error.code, "stopped"))
            else:
                self._outcomes[site] = _read(reply.content)
        if not self._under_way:
            self._turnarounds_s.append(time.monotonic() - self._sent)

    def _fail(self, site: str, reason: Reason) -> None:
        """Record why a request has no reply; its node is looked up again before the next request."""
        self._outcomes[site] = Unreachable(reason)
        if reason in ("offline", "lost"):
            self._nodes.pop(site, None)


def _read(records: RecordDict) -> bytes | Unreachable:
    if not records:
        return Unreachable("partial")
    try:
        return unpack_reply(records)
    except MessageError:
        return Unreachable("stopped")
