"""Adding and removing sites: the register here and the SuperLink's own list are brought to say the same.

The register is written before and after Flower is asked, so that whatever breaks off in between, the same command again
ends it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multicentre.deployment.cards import SiteCard
from multicentre.deployment.commands import Command, ask
from multicentre.deployment.connectivity import is_healthy
from multicentre.deployment.consortium import CONNECTION, LOOPBACK, Consortium
from multicentre.deployment.site_register import RegisterEntry, SiteRegister
from multicentre.federation.errors import ConfigurationError, IntegrityError
from multicentre.federation.storage import held

_KEY_IN_USE = "[code: 23]"
_PATIENCE_S = 30.0
Report = Callable[[str], None]


@dataclass(frozen=True)
class SiteStatus:
    """A site, and what the SuperLink says of it now.

    Parameters
    ----------
    entry : RegisterEntry
    status : str
        ``online``, ``offline``, ``registered`` (never connected so far), ``pending``, or ``unknown`` where the
        SuperLink does not have it.
    since : str
        When it came to that, as the SuperLink tells it.
    """

    entry: RegisterEntry
    status: str
    since: str


class Enrolment:
    """The register of a consortium whose SuperLink runs.

    Parameters
    ----------
    consortium : Consortium
    report : callable
        Takes each Flower command as it is run.
    """

    def __init__(self, consortium: Consortium, report: Report) -> None:
        self._consortium = consortium
        self._report = report

    def add(self, card: SiteCard) -> RegisterEntry:
        """Register a site, and publish the roster.

        Raises
        ------
        ConfigurationError
            Its name or a key is another site's, or the SuperLink does not answer. What was begun is ended by the same
            command.
        """
        with self._changing() as register:
            self._check_up()
            known = register.adding(card)
            known.write(self._consortium.register)
            entry = known.find(card.name)
            forgotten = entry.state == "registered" and entry.node_id not in _still(self._listed())
            for one in [*known.pending, *([entry] if forgotten else [])]:
                known = self._settled(known, one)
            self.publish(known)
            return known.find(card.name)

    def remove(self, name: str) -> RegisterEntry:
        """Take a site from the SuperLink and from the roster.

        Raises
        ------
        ConfigurationError
            No such site, or the SuperLink does not answer.
        """
        with self._changing() as register:
            entry = register.find(name)
            listed = self._listed()
            node_id = entry.node_id if entry.node_id is not None else self._stray(register)
            if node_id is not None and node_id in _still(listed):
                register = register.registered(name, node_id)
                register.write(self._consortium.register)
                self._ask("unregister", str(node_id))
            register = register.removed(name)
            register.write(self._consortium.register)
            self.publish(register)
            return entry

    def sites(self) -> list[SiteStatus]:
        """Return every site with what the SuperLink says of it."""
        listed = self._listed()
        return [_seen(entry, listed) for entry in SiteRegister.read(self._consortium.register).current]

    def publish(self, register: SiteRegister) -> Path:
        """Write the roster for the sites and return its path."""
        path = self._consortium.public / "roster.toml"
        register.roster.write(path)
        return path

    def _settled(self, register: SiteRegister, entry: RegisterEntry) -> SiteRegister:
        """Register one pending site; one that reached the SuperLink before is recognised there."""
        answer = self._register(entry.card)
        if answer.get("success"):
            node_id = int(answer["node-id"])
        elif _KEY_IN_USE in str(answer.get("error-message", "")):
            stray = self._stray(register)
            if stray is None:
                raise IntegrityError(
                    "the SuperLink has its key, but not as one of its sites",
                    where=f"site {entry.card.name}",
                    hint="The key was used before: let the site make new ones with multicentre site keygen.",
                )
            node_id = stray
        else:
            raise self._refused(answer, "register").at(f"site {entry.card.name}")
        register = register.registered(entry.card.name, node_id)
        register.write(self._consortium.register)
        return register

    def _register(self, card: SiteCard) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "site.pub"
            path.write_text(f"{card.public_key}\n", encoding="utf-8")
            return self._asked("register", str(path), CONNECTION, f"--name={card.name}")

    def _stray(self, register: SiteRegister) -> int | None:
        """Return the one site that the SuperLink has and the register has not."""
        strays = sorted(_still(self._listed()) - register.node_ids)
        if len(strays) > 1:
            commands = "; ".join(self._command("unregister", str(one), CONNECTION).as_typed() for one in strays)
            raise IntegrityError(
                f"the SuperLink has {len(strays)} sites that the register has not",
                where=str(self._consortium.register),
                hint=f"Somebody registered them by hand; remove them: {commands}",
            )
        return strays[0] if strays else None

    def _listed(self) -> dict[int, dict[str, Any]]:
        answer = self._asked("list", CONNECTION)
        if not answer.get("success"):
            raise self._refused(answer, "list")
        return {int(one["node-id"]): one for one in answer["nodes"]}

    def _ask(self, verb: str, *arguments: str) -> dict[str, Any]:
        answer = self._asked(verb, *arguments, CONNECTION)
        if not answer.get("success"):
            raise self._refused(answer, verb)
        return answer

    def _asked(self, verb: str, *arguments: str) -> dict[str, Any]:
        self._check_up()
        self._consortium.write_connection()
        command = self._command(verb, *arguments)
        self._report(command.as_typed())
        return ask(command)

    def _check_up(self) -> None:
        consortium = self._consortium
        if not is_healthy(LOOPBACK, consortium.settings.loopback.superlink, consortium.own_ca):
            raise ConfigurationError(
                "the coordinator is not up",
                where=consortium.superlink_address,
                hint=f"Start it: multicentre coordinator up --folder {consortium.folder}. Nothing was lost.",
            )

    def _command(self, verb: str, *arguments: str) -> Command:
        return self._consortium.command("flwr", "supernode", verb, *arguments, "--format", "json")

    def _refused(self, answer: dict[str, Any], verb: str) -> ConfigurationError:
        said = " ".join(str(answer.get("error-message", "no reason given")).split())
        return ConfigurationError(
            f"Flower refused: {said}",
            where=f"flwr supernode {verb}",
            hint=f"Is the coordinator up? multicentre coordinator up --folder {self._consortium.folder}",
        )

    @contextlib.contextmanager
    def _changing(self) -> Iterator[SiteRegister]:
        self._consortium.state.mkdir(exist_ok=True)
        with held(self._consortium.state / "register.lock", _PATIENCE_S):
            yield SiteRegister.read(self._consortium.register)


def _still(listed: dict[int, dict[str, Any]]) -> frozenset[int]:
    return frozenset(node_id for node_id, one in listed.items() if one["status"] not in ("unregistered", "deleted"))


def _seen(entry: RegisterEntry, listed: dict[int, dict[str, Any]]) -> SiteStatus:
    if entry.node_id is None:
        return SiteStatus(entry, "pending", entry.since)
    one = listed.get(entry.node_id)
    if one is None or entry.node_id not in _still(listed):
        return SiteStatus(entry, "unknown", "")
    times = {"online": "online-at", "offline": "offline-at"}
    return SiteStatus(entry, str(one["status"]), str(one.get(times.get(str(one["status"]), "created-at"), "")))
