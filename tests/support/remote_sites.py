"""Sites behind a wire, in this process: every letter is bytes, and what carries them can lose or repeat letters."""

import functools
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import multicentre as mc
from multicentre.core.steps import SitePart
from multicentre.engines.remote.request_handler import RequestHandler
from multicentre.engines.remote.socket import Unreachable
from multicentre.errors import ConfigurationError
from multicentre.federation import facts_of, new_guard, open_site
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.secret_files import Secret
from multicentre.privacy.secure_sum.identity import Identity


def offered(method: str) -> type[SitePart]:
    """Return the part of this name among all that were imported."""
    found = {part.method: part for part in _descendants(SitePart)}
    if method not in found:
        raise ConfigurationError("the method is not installed at this site", where=method)
    return found[method]


def _descendants(kind):
    return {kind}.union(*(_descendants(child) for child in kind.__subclasses__()))


class OpenSiteService:
    """What a site of a test brings along: one data set, whatever the study."""

    def __init__(self, name, data, policy, identity, peers, key, ledger):
        self.name, self.data, self.policy = name, data, policy
        self.identity, self.peers, self.key = identity, peers, key
        self.guard = new_guard(name, data, policy, ledger)

    def open(self, opening, store):
        identity = self.identity if opening.secure_sum else None
        key = self.key or PseudonymKey.simulated(opening.study)
        return open_site(self.name, self.data, self.guard, identity=identity, peers=self.peers, store=store, key=key)

    def close(self, run, attempt):
        pass

    def offers(self, study, method):
        return offered(method)

    def facts(self, study):
        return facts_of(self.policy)


class RequestHandlers:
    """Request handlers of several sites; a site can be restarted, which loses what it had in memory."""

    def __init__(self, sites: Mapping[str, Any], folder: Path, policy=None, pseudonym_key=None):
        identities = {name: Identity.generate() for name in sites}
        public = {name: one.public for name, one in identities.items()}
        self.folder, self.sites = folder, tuple(sites)
        self.keys = {name: Secret(secrets.token_bytes(32)) for name in sites}
        self.ledgers = {name: Ledger(folder / name / "ledger.jsonl") for name in sites}
        key_of = pseudonym_key.get if isinstance(pseudonym_key, Mapping) else lambda name: pseudonym_key
        self.services = {
            name: OpenSiteService(
                name, data, policy_of(policy, name), identities[name], public, key_of(name), self.ledgers[name]
            )
            for name, data in sites.items()
        }
        self.handlers = {}
        for name in sites:
            self.restart(name)

    def restart(self, name: str) -> None:
        """Begin a site's process anew."""
        self.handlers[name] = RequestHandler(name, self.services[name], self.folder / name / "vault", self.keys[name])

    @property
    def handles(self) -> dict[str, Callable[[bytes], bytes]]:
        """What answers each site's letters."""
        return {name: functools.partial(self._handle, name) for name in self.sites}

    def _handle(self, name: str, letter: bytes) -> bytes:
        return self.handlers[name].handle(letter)


def policy_of(policy, name):
    """Return one site's policy of what may be one for all, or none."""
    if policy is None:
        return mc.Policy()
    return policy.of_site(name) if isinstance(policy, mc.Policy) else policy[name]


class ByHand:
    """Carries letters by calling the request handlers; `mishap(site, n)` says what happens to a site's n-th letter."""

    def __init__(self, handles, mishap=lambda site, number: None):
        self.handles, self.mishap = handles, mishap
        self.sites = tuple(handles)
        self.waiting, self.sent = {}, dict.fromkeys(handles, 0)
        self.closed = False

    def send(self, letters):
        for site, letter in letters.items():
            self.sent[site] += 1
            what = self.mishap(site, self.sent[site])
            if what == "unsent":
                self.waiting[site] = Unreachable("offline")
                continue
            reply = self.handles[site](letter)
            if what == "twice":
                assert self.handles[site](letter) == reply
            self.waiting[site] = Unreachable("lost") if what == "unanswered" else reply

    def collect(self, wait_s):
        came, self.waiting = self.waiting, {}
        return came

    def close(self):
        self.closed = True
