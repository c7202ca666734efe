"""Adding and removing sites, with the register and the SuperLink's list kept consistent.

The register is written before and after each Flower command, so that an interrupted command can be repeated.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multicentre.core.storage import held
from multicentre.errors import ConfigurationError, IntegrityError, MulticentreError
from multicentre.privacy.site_cards import SiteCard
from multicentre_sites.deployment.connectivity import is_healthy
from multicentre_sites.deployment.coordinator_folder import CONNECTION, LOOPBACK, Consortium
from multicentre_sites.deployment.flower_commands import Command, ask
from multicentre_sites.deployment.release_key import ReleaseKey
from multicentre_sites.deployment.site_register import RegisterEntry, Roster, SiteRegister

_KEY_IN_USE = "[code: 23]"  # Flower's error code
_LOCK_WAIT_S = 30.0  # another command holds the lock while flwr runs, for seconds
Report = Callable[[str], None]


@dataclass(frozen=True)
class SiteStatus:
    """Site with its current status at the SuperLink.

    Parameters
    ----------
    entry : RegisterEntry
    status : str
        ``online``, ``offline``, ``registered`` (never connected so far), ``pending``, or ``unknown`` where the
        SuperLink does not have it.
    since : str
        Time of this status according to the SuperLink.
    """

    entry: RegisterEntry
    status: str
    since: str


class Enrolment:
    """Enrolment of sites at a running SuperLink.

    Parameters
    ----------
    consortium : Consortium
    report : callable
        Receives each Flower command before it is run.
    """

    def __init__(self, consortium: Consortium, report: Report) -> None:
        self._consortium = consortium
        self._report = report

    def add(self, card: SiteCard) -> RegisterEntry:
        """Register a site and publish the roster.

        Raises
        ------
        ConfigurationError
            Another site has its name or a key, or the SuperLink does not answer. Repeat the command in this case.
        """
        with self._locked_register() as register:
            self._check_up()
            updated = register.adding(card)
            updated.write(self._consortium.register)
            entry = updated.find(card.name)
            lost_at_superlink = entry.state == "registered" and entry.node_id not in _registered_nodes(
                self._list_nodes()
            )
            for one in [*updated.pending, *([entry] if lost_at_superlink else [])]:
                updated = self._confirm(updated, one)
            self.publish(updated)
            return updated.find(card.name)

    def remove(self, name: str) -> RegisterEntry:
        """Remove a site from the SuperLink and from the roster.

        Raises
        ------
        ConfigurationError
            There is no such site, or the SuperLink does not answer.
        """
        with self._locked_register() as register:
            entry = register.find(name)
            listed = self._list_nodes()
            node_id = entry.node_id if entry.node_id is not None else self._stray(register)
            if node_id is not None and node_id in _registered_nodes(listed):
                register = register.registered(name, node_id)
                register.write(self._consortium.register)
                self._run_or_raise("unregister", str(node_id))
            register = register.removed(name)
            register.write(self._consortium.register)
            self.publish(register)
            return entry

    def sites(self) -> list[SiteStatus]:
        """Return every site with its status at the SuperLink."""
        listed = self._list_nodes()
        return [_status_of(entry, listed) for entry in SiteRegister.read(self._consortium.register).current]

    def restore(self) -> None:
        """Register the sites again that the SuperLink lost, as after its database was lost or restored from a copy.

        Raises
        ------
        ConfigurationError, IntegrityError
            The SuperLink does not accept a site; the message names it.
        """
        with self._locked_register() as register:
            registered = [one for one in register.current if one.state == "registered"]
            if not registered:
                return
            listed = _registered_nodes(self._list_nodes())
            for one in registered:
                if one.node_id not in listed:
                    register = self._confirm(register, one)
                    self._report(f"{one.card.name} was lost at the SuperLink and is registered again.")

    def publish(self, register: SiteRegister) -> Path:
        """Write the roster for the sites, signed by the release key, and return its path.

        A file with the same sites and a valid signature stays, so that its fingerprint does too.
        """
        path, key = self._consortium.public / "roster.toml", ReleaseKey.read(self._consortium.release_key)
        with contextlib.suppress(MulticentreError):
            written = Roster.read(path)
            if written == register.roster and written.is_signed_by([key.public]):
                return path
        register.roster.signed_by(key).write(path)
        return path

    def _confirm(self, register: SiteRegister, entry: RegisterEntry) -> SiteRegister:
        """Register one pending site, or recognise it at the SuperLink if it is registered there."""
        answer = self._register(entry.card)
        if answer.get("success"):
            node_id = int(answer["node-id"])
        elif _KEY_IN_USE in str(answer.get("error-message", "")):
            stray = self._stray(register)
            if stray is None:
                raise IntegrityError(
                    "the public key must be new to the SuperLink; got a key of a removed site",
                    where=f"site {entry.card.name}",
                    hint="The site must make new keys with multicentre site keygen.",
                )
            node_id = stray
        else:
            raise self._refusal(answer, "register").at(f"site {entry.card.name}")
        register = register.registered(entry.card.name, node_id)
        register.write(self._consortium.register)
        return register

    def _register(self, card: SiteCard) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "site.pub"
            path.write_text(f"{card.public_key}\n", encoding="utf-8")
            return self._run_flower("register", str(path), CONNECTION, f"--name={card.name}")

    def _stray(self, register: SiteRegister) -> int | None:
        """Return the one site of the SuperLink that is not in the register; None without one."""
        strays = sorted(_registered_nodes(self._list_nodes()) - register.node_ids)
        if len(strays) > 1:
            commands = "; ".join(self._command("unregister", str(one), CONNECTION).as_typed() for one in strays)
            raise IntegrityError(
                f"the sites of the SuperLink must be in the register; got {len(strays)} others",
                where=str(self._consortium.register),
                hint=f"They were registered by hand; remove them: {commands}",
            )
        return strays[0] if strays else None

    def _list_nodes(self) -> dict[int, dict[str, Any]]:
        answer = self._run_flower("list", CONNECTION)
        if not answer.get("success"):
            raise self._refusal(answer, "list")
        return {int(one["node-id"]): one for one in answer["nodes"]}

    def _run_or_raise(self, verb: str, *arguments: str) -> dict[str, Any]:
        answer = self._run_flower(verb, *arguments, CONNECTION)
        if not answer.get("success"):
            raise self._refusal(answer, verb)
        return answer

    def _run_flower(self, verb: str, *arguments: str) -> dict[str, Any]:
        self._check_up()
        self._consortium.write_connection()
        command = self._command(verb, *arguments)
        self._report(command.as_typed())
        return ask(command)

    def _check_up(self) -> None:
        consortium = self._consortium
        if not is_healthy(LOOPBACK, consortium.settings.loopback.superlink, consortium.superlink_ca):
            raise ConfigurationError(
                "the coordinator must be running; it does not answer",
                where=consortium.superlink_address,
                hint=f"Start it: multicentre coordinator up --folder {consortium.folder}. Nothing was changed.",
            )

    def _command(self, verb: str, *arguments: str) -> Command:
        return self._consortium.command("flwr", "supernode", verb, *arguments, "--format", "json")

    def _refusal(self, answer: dict[str, Any], verb: str) -> ConfigurationError:
        message = " ".join(str(answer.get("error-message", "no reason given")).split())
        return ConfigurationError(
            f"Flower refused: {message}",
            where=f"flwr supernode {verb}",
            hint=f"Check that the coordinator runs: multicentre coordinator up --folder {self._consortium.folder}",
        )

    @contextlib.contextmanager
    def _locked_register(self) -> Iterator[SiteRegister]:
        self._consortium.state.mkdir(exist_ok=True)
        with held(self._consortium.state / "register.lock", _LOCK_WAIT_S):
            yield SiteRegister.read(self._consortium.register)


def _registered_nodes(listed: dict[int, dict[str, Any]]) -> frozenset[int]:
    return frozenset(node_id for node_id, one in listed.items() if one["status"] not in ("unregistered", "deleted"))


def _status_of(entry: RegisterEntry, listed: dict[int, dict[str, Any]]) -> SiteStatus:
    if entry.node_id is None:
        return SiteStatus(entry, "pending", entry.since)
    one = listed.get(entry.node_id)
    if one is None or entry.node_id not in _registered_nodes(listed):
        return SiteStatus(entry, "unknown", "")
    times = {"online": "online-at", "offline": "offline-at"}
    return SiteStatus(entry, str(one["status"]), str(one.get(times.get(str(one["status"]), "created-at"), "")))
