"""What runs at a site: it looks a step up, runs it, lets the guard see the answer, and hands it over."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.asker import Asker
from multicentre.federation.engine import Call, Outcome, Refused, Selection, Upkeep, encode_selection
from multicentre.federation.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    IntegrityError,
    MessageError,
    MulticentreError,
    ProtocolRefused,
    RefusedByPolicy,
    SiteFailed,
)
from multicentre.federation.messages import Message, Nothing
from multicentre.federation.noise import PlanReview, PlanShown
from multicentre.federation.steps import Common, Release, SitePart
from multicentre.federation.storage import Store
from multicentre.federation.transcript import DIGEST_BYTES, Content, SiteTranscript, SiteTranscripts
from multicentre.federation.unmasked import Division, UnmaskedAnswers
from multicentre.federation.wire import decode, encode

Rows = NDArray[np.int64]
_ABOUT_BYTES = 32


class Gate(Protocol):
    """The one gate through which a site's answers pass; it fails closed by raising."""

    @property
    def least_behind(self) -> int:
        """How many patients must stand behind a value."""

    def least_records(self, rows: Rows | None) -> int:
        """Return how many of the records at `rows` must stand behind a value so that enough patients do."""

    def admit(self, call: Call) -> None:
        """Check, before anything is computed, that the site's policy allows the call."""

    def review(self, plan: PlanShown) -> None:
        """Check, before a fit begins, that all it plans to release is allowed and within the budget."""

    def check_fit(self, call: Call, n_parameters: int, rows: Rows | None) -> None:
        """Check, before anything is computed, that a regression rests on enough patients for its coefficients."""

    def fields_of(self, data: Any) -> Any:
        """Return which views and columns the data have, as the site says with its keys of masked sums."""

    def check_sites_per_field(self, call: Call, behind: Mapping[Any, Any]) -> None:
        """Check, before anything is computed, that enough sites stand behind each view and column of a masked sum."""

    def hides(self, call: Call) -> bool:
        """Tell whether the noise that the call asks for hides each patient, so that no minimum number is needed."""

    def release(self, call: Call, release: Release, rows: Rows | None = None) -> Release:
        """Check an answer, write it to the ledger, and return it with the noise that the call asks for.

        Rows are the records that the answer is about; None for all.
        """

    def patients_among(self, rows: Rows) -> int:
        """Return how many patients the records at `rows` belong to; how many records where nobody knows."""

    def persons(self, rows: Rows | None, *, all_named: bool = True) -> Rows | None:
        """Return a number for the person of each record at `rows`; None where nobody has two records.

        Where a record's person has no name, return None, or, without `all_named`, -1 for that record.
        """

    def note_failure(self, call: Call, error: BaseException) -> BaseException:
        """Write down that a step broke, and return what the coordinator may be told of it."""

    def note_departure(self, call: Call, error: MulticentreError) -> None:
        """Write down that a call departs from the transcript of its session, and is refused."""


class Seal(Protocol):
    """Turns an answer into a summand that says nothing by itself."""

    @property
    def keys(self) -> type[SitePart]:
        """The site part that holds a session's keys."""

    def new_keys(self, site: str, held: Any) -> SitePart:
        """Return the part that holds one session's keys at `site`, which has the fields `held`."""

    def sites_behind(self, call: Call, keys: SitePart) -> Mapping[Any, Any]:
        """Return the sites behind each view or column of a masked sum to which the site adds, and that some lack."""

    def check(self, call: Call, keys: SitePart) -> None:
        """Check, before anything is computed, that the answer to a call can be masked."""

    def protect(self, call: Call, release: Release, keys: SitePart) -> Message:
        """Return the masked form of `release`."""


class Witness(Protocol):
    """Keeps what a site was sent of the ends of its peers' ledgers."""

    @property
    def head(self) -> Any:
        """The signed end of the site's own ledger; None where nothing was signed."""

    def receive(self, packed: bytes) -> None:
        """Take in the ends of ledgers that the coordinator passes on."""


@dataclass(eq=False)
class WorkedOn:
    """Which records the answers about aligned patients rested on so far, for all runs over the same data.

    Attributes
    ----------
    aligned : list of array of int
        Rows of each alignment that was worked on.
    whole : bool
        Whether all records together were worked on too.
    unmasked : UnmaskedAnswers
        Folds that were answered for unmasked.
    """

    aligned: list[Rows] = field(default_factory=list)
    whole: bool = False
    unmasked: UnmaskedAnswers = field(default_factory=UnmaskedAnswers)


@dataclass(frozen=True, eq=False)
class _Chosen:
    """The records of a session: which they are (None for all), in the site's own words too, and their common order.

    Divisions are the plans of folds behind them, the outermost first.
    """

    selection: Selection | None
    rows: Rows | None
    within: str
    common: Common | None
    divisions: tuple[Division, ...] = ()


@dataclass(frozen=True, eq=False)
class _Replaced:
    """State that a restored one took the place of: for which name, and the entry that stood for it."""

    name: str
    state: Message | None
    content: Content | None


class SiteRuntime:
    """The site's side of a federation.

    Parameters
    ----------
    name : str
        Name of the site.
    data : object
        The site's data.
    gate : Gate
        The guard.
    seal : Seal, optional
        How answers are masked for a secure sum; without it the site answers unmasked only.
    store : Store, optional
        Where the states of site parts are kept between rounds.
    key : object, optional
        The key of the study's pseudonyms, for the parts that see identifiers.
    worked_on : WorkedOn, optional
        What earlier runs over the same data rested on; this one's own memory otherwise.
    terms : str, optional
        Hash of the study that the site agreed to, with which every transcript begins.
    witness : Witness, optional
        What keeps the ends of the peers' ledgers; without it they are not kept.

    Attributes
    ----------
    asked_by : Asker, optional
        Who asked for the run; None in process.
    """

    asked_by: Asker | None = None

    def __init__(
        self,
        name: str,
        data: Any,
        gate: Gate,
        *,
        seal: Seal | None = None,
        store: Store | None = None,
        key: object = None,
        worked_on: WorkedOn | None = None,
        terms: str = "",
        witness: Witness | None = None,
    ) -> None:
        self.name = name
        self.data = data
        self._bare = data.without_identifier() if hasattr(data, "without_identifier") else data
        self._key = key
        self._gate = gate
        self._seal = seal
        self._store = store
        self._terms = terms
        self._parts: dict[tuple[str, type[SitePart]], SitePart] = {}
        self._chosen: dict[str, _Chosen] = {}
        self._transcripts = SiteTranscripts()
        self._replaced: dict[tuple[str, type[SitePart]], _Replaced] = {}
        self._worked_on = worked_on or WorkedOn()
        self._witness = witness
        self._log = logging.getLogger(f"multicentre.site.{name}")

    def answer(self, call: Call) -> Outcome:
        """Run the step that `call` names and return what may leave.

        Whatever breaks unforeseen is logged at the site; only the exception's kind and the step's name leave.
        """
        try:
            if type(call.ask) is not call.step.asks:
                raise MessageError("the step takes another message", where=call.step.name)
            call.ask.checked()
            call = self._entered(call)
            with self._noting_refusal(call):
                return self._admitted(call)
        except MulticentreError as error:
            return Refused(error.at(self.name))
        except (Exception, SystemExit) as error:
            self._log.exception("step %s of %s broke", call.step.name, call.step.method)
            return Refused(
                SiteFailed(
                    f"the step {call.step.name} of {call.step.method} broke ({type(error).__name__})",
                    where=self.name,
                    hint=f"The site's own log, {self._log.name}, holds the details.",
                )
            )

    def _admitted(self, call: Call) -> Message:
        """Return the answer to a call that was entered in the transcript, if policy and guard let it pass."""
        self._gate.admit(call)
        if call.mask is not None:
            seal, keys = self._masking(call)
            try:
                seal.check(call, keys)
            except MulticentreError as error:
                self._gate.note_departure(call, error)
                raise
            if call.step.part.sums_fields:
                self._gate.check_sites_per_field(call, seal.sites_behind(call, keys))
        release = self._run(call)
        return self._sealed(call, self._gate.release(call, release, self._rows_behind(call)))

    @contextmanager
    def _noting_refusal(self, call: Call) -> Iterator[None]:
        """Enter in the transcript that this site refused a call which others may have carried out."""
        try:
            yield
        except (Exception, SystemExit):
            step = call.step
            if step.part.in_transcript and step.addressed == "all" and not step.refusable:
                self._transcripts[call.session].note_refusal()
            raise

    @property
    def head(self) -> Any:
        """The signed end of the site's ledger; None where nothing was signed."""
        return None if self._witness is None else self._witness.head

    def receive_heads(self, statement: bytes) -> None:
        """Take in where the peers' ledgers end."""
        if self._witness is not None:
            self._witness.receive(statement)

    def upkeep(self, errand: Upkeep) -> None:
        """Keep, restore, reset or forget what the part of a session remembers.

        Raises
        ------
        StateGone, IntegrityError
            What is to be restored is not there, or is about other records.
        """
        if errand.action == "forget":
            self._forget(errand.session, lambda part: True)
        elif self._store is not None and errand.part.remembers is not Nothing:
            actions = {"keep": self._keep, "restore": self._restore, "reset": self._take_back}
            actions[errand.action](self._store, errand)

    def _forget(self, session: str, is_forgotten: Callable[[type[SitePart]], bool]) -> None:
        for key in [key for key in list(self._parts) if key[0] == session and is_forgotten(key[1])]:
            self._parts.pop(key, None)
        self._chosen.pop(session, None)
        self._transcripts.forget(session)
        self._drop_replaced(session)

    def _drop_replaced(self, session: str) -> None:
        """Make what was restored in a session final."""
        for key in [key for key in self._replaced if key[0] == session]:
            del self._replaced[key]

    def _keep(self, store: Store, errand: Upkeep) -> None:
        """Keep what a part remembers; one that was never asked is not made for it: only calls choose records."""
        part = self._parts.get((errand.session, errand.part))
        state = b"" if part is None or part.state is None else _about(part) + encode(part.state)
        store.keep(errand.name, errand.number, self._transcripts.kept(errand.session) + state)

    def _restore(self, store: Store, errand: Upkeep) -> None:
        """Give a part the state that was kept, if any, and enter that in the transcript of the session.

        Where there is no state to give back, no records are chosen: whether that works would tell of the records.
        """
        kept = store.read(errand.name, errand.number)
        digest, kept = kept[:DIGEST_BYTES], kept[DIGEST_BYTES:]
        key = (errand.session, errand.part)
        part = self._parts.get(key)
        replaced = _Replaced(errand.name, None if part is None else part.state, self._transcripts.restored(*key))
        try:
            if part is None and kept:
                part = self._part(errand.session, errand.part, errand.selection)
            if part is not None and kept and kept[:_ABOUT_BYTES] != _about(part):
                raise MessageError("other records")
            if part is not None:
                part.state = decode(errand.part.remembers, kept[_ABOUT_BYTES:]) if kept else None
        except (Exception, SystemExit):  # which of them would tell of the records, past the guard
            self._log.exception("what a part remembers could not be restored")
            raise IntegrityError(
                "what was kept is not about these records", where=errand.part.method, hint="Start the run anew."
            ) from None
        # Whether there was a state counts too: the hash alone does not tell which part was kept under this name.
        self._transcripts.restore(*key, (errand.name, errand.number, digest.hex(), bool(kept)))
        if key not in self._replaced or self._replaced[key].name != errand.name:
            self._replaced[key] = replaced

    def _take_back(self, store: Store, errand: Upkeep) -> None:
        """Undo what was restored under a name since the last call: other sites could not restore it."""
        key = (errand.session, errand.part)
        if key in self._replaced and self._replaced[key].name == errand.name:
            replaced = self._replaced.pop(key)
            if key in self._parts:
                self._parts[key].state = replaced.state
            self._transcripts.restore(*key, replaced.content)

    def _entered(self, call: Call) -> Call:
        """Enter a call in the transcript of its session, and return it with its mark.

        A session that begins again forgets what its parts remember: state must not outlive its transcript. It is about
        the same records as before, because keys of masks and the lists of fields signed with them outlive it.
        """
        self._drop_replaced(call.session)
        start = None
        if self._transcripts.begins_again(call):
            start = self._transcripts[call.session].start
            self._forget(call.session, lambda part: part.in_transcript)
        try:
            transcript = self._begun(call.session, call.selection)
            if start not in (None, transcript.start):
                self._forget(call.session, lambda part: True)
                raise ConfigurationError("a session is about one selection of records", where=call.session)
        except (Exception, SystemExit) as error:
            self._gate.admit(call)  # a call that the policy refuses must not tell which folds hold records
            raise self._gate.note_failure(call, error) from None
        if not call.step.part.in_transcript:
            return dataclasses.replace(call, mark=transcript.mark(call))
        try:
            return dataclasses.replace(call, mark=transcript.enter(call, self.name))
        except ProtocolRefused as error:
            self._gate.note_departure(dataclasses.replace(call, mark=transcript.mark(call)), error)
            raise

    def _run(self, call: Call) -> Release:
        with self._noting_failure(call):
            part = self._part(call.session, call.step.part, call.selection)
            part.noised = self._gate.hides(call)
            part.masked, part.least_behind = call.mask is not None, self._least_behind(call)
            part.n_peers = len(set(call.peers))
            _check_peers(part, call)
            if not (part.masked or part.noised):
                self._check_unmasked(call)
            n_parameters = part.n_parameters(call.ask)
        self._gate.check_fit(call, 0 if part.noised else n_parameters, self._rows_behind(call))
        with self._noting_failure(call), self._noting_change(part, call):
            release: Release = call.step.run(part, call.ask)
        return release

    def _least_behind(self, call: Call) -> int:
        """Return the policy's minimum in what a part counts: patients, or records of which so many belong to them."""
        if call.step.part.counts_persons:
            return self._gate.least_behind
        return self._gate.least_records(self._chosen[call.session].rows)

    @contextmanager
    def _noting_failure(self, call: Call) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:
            raise self._gate.note_failure(call, error) from None

    @contextmanager
    def _noting_change(self, part: SitePart, call: Call) -> Iterator[None]:
        """Enter in the transcript that a step changed state or records, or that it failed after it had done so.

        Sites may refuse what others accept. A site whose state is another one for that must have another transcript.
        """
        state, before, completed = part.state, _memory_of(part), False
        attributes = dict(vars(part))
        try:
            yield
            completed = True
        finally:
            if call.step.addressed == "each" and part.state is state:
                # Values that it derived go as well: other sites, which were not asked, did not derive them.
                vars(part).clear()
                vars(part).update(attributes)
            if call.step.addressed == "all" and any(map(operator.is_not, _memory_of(part), before)):
                self._transcripts[call.session].note_change(completed=completed)
        _check_unchanged(part, state, call)

    def _begun(self, session: str, selection: Selection | None) -> SiteTranscript:
        """Return the transcript of a session; its records are chosen when it begins."""
        if session not in self._chosen:
            chosen = self._chosen[session] = self._choose(selection)
            plan = None if selection is None else self._transcripts[selection.plan].value
            records = [self._terms, selection and encode_selection(selection), chosen.within, plan]
            self._transcripts.begin(session, records)
        self._check_selection(session, selection)
        return self._transcripts[session]

    def _check_selection(self, session: str, selection: Selection | None) -> None:
        if self._chosen[session].selection != selection:
            raise ConfigurationError("a session is about one selection of records", where=session)

    def _part(self, session: str, kind: type[SitePart], selection: Selection | None) -> SitePart:
        self._begun(session, selection)
        chosen = self._chosen[session]
        key = (session, kind)
        if key not in self._parts:
            if kind.holds_patients and not kind.sees_identifiers and (chosen.common or selection is None):
                self._remember(chosen)
            self._parts[key] = self._new_part(kind, chosen.rows)
            self._parts[key].within = chosen.within
            self._parts[key].common = chosen.common
        return self._parts[key]

    def _rows_behind(self, call: Call) -> Rows | None:
        """Return the records that an answer is about; None for all."""
        chosen, used = self._chosen[call.session].rows, self._parts[call.session, call.step.part].used
        if call.step.releases.of_all_records:
            return chosen
        if used is None or chosen is None:
            return chosen if used is None else used
        return chosen[used]

    def _choose(self, selection: Selection | None) -> _Chosen:
        """Return the records of a selection."""
        if selection is None:
            return _Chosen(None, None, "", None)
        outer = self._chosen.get(selection.plan, _Chosen(selection, None, "", None))
        if outer.selection != selection.within:
            raise ConfigurationError("these records were not divided", where=selection.plan, hint="Make the plan anew.")
        dividing = (part for (session, _), part in self._parts.items() if session == selection.plan)
        part = next((part for part in dividing if part.folds is not None), None)
        folds = np.zeros(0, dtype=np.int64) if part is None or part.folds is None else part.folds
        places = np.flatnonzero(np.isin(folds, selection.folds) & (folds >= 0))
        if part is None or not len(places):
            raise DataError("no record here is in the folds", where=str(selection), hint="Make the plan anew.")
        chosen = ".".join(map(str, sorted({fold for fold in selection.folds if fold >= 0})))
        label = f"{outer.within}{'/' if outer.within else ''}{part.method}/{part.division}:{chosen}"
        if part.alignment is None:
            divided = np.arange(len(folds)) if outer.rows is None else outer.rows
            divisions = (*outer.divisions, Division(folds, divided, part.division, part.pieces))
            return _Chosen(selection, divided[places], label, None, divisions)
        places, common = part.alignment
        rows = places if outer.rows is None else outer.rows[places]
        return _Chosen(selection, rows, label, common, outer.divisions)

    def _remember(self, chosen: _Chosen) -> None:
        """Refuse aligned records that differ by few from others, or from all: two answers would tell of those few.

        What is remembered lasts as long as the site's process; a policy's ``min_difference`` lasts longer.
        """
        before = self._worked_on
        if chosen.common is None or chosen.rows is None:
            before.whole = True
            counts = [self._n_differing(other) for other in before.aligned]
        else:
            counts = [self._n_differing(chosen.rows, other) for other in before.aligned]
            counts += [self._n_differing(chosen.rows)] if before.whole else []
        if any(0 < n_patients < self._gate.least_behind for n_patients in counts):
            raise DisclosureRefused(
                "these records differ by fewer than the policy's minimum from others that were worked on",
                where=self.name,
                hint="Work on the alignment that there is, or begin a new federation.",
            )
        if chosen.common is not None and chosen.rows is not None and 0 not in counts:
            before.aligned.append(chosen.rows)

    def _check_unmasked(self, call: Call) -> None:
        """Refuse an unmasked answer about folds that other answers could tell few patients of, however counted."""
        chosen, releases = self._chosen[call.session], call.step.releases
        if chosen.rows is None or not chosen.divisions or not call.step.part.holds_patients:
            return
        if releases.tells_of_patients() and not releases.individual:
            least, unmasked = self._gate.least_behind, self._worked_on.unmasked
            unmasked.admit(chosen.rows, len(self.data), chosen.divisions, least, self._gate.patients_among)

    def _n_differing(self, rows: Rows, others: Rows | None = None) -> int:
        """Return how many patients have a record at `rows` and not at `others` (all without it), or the reverse."""
        whole = np.arange(len(self.data)) if others is None else others
        return self._gate.patients_among(np.setxor1d(rows, whole))

    def _new_part(self, kind: type[SitePart], rows: Rows | None) -> SitePart:
        if kind is PlanReview:
            return PlanReview(self.name, self._gate.review)
        if self._seal is not None and kind is self._seal.keys:
            return self._seal.new_keys(self.name, self._gate.fields_of(_taken(self._bare, rows)))
        part = kind(self.name, _taken(self.data if kind.sees_identifiers else self._bare, rows))
        if kind.sees_identifiers:
            part.key = self._key
        if kind.clips_persons or kind.counts_persons:
            part.persons = self._gate.persons(rows, all_named=kind.clips_persons)
        return part

    def _sealed(self, call: Call, release: Release) -> Message:
        if call.protection == "unmasked":
            return dataclasses.replace(release, patients={})
        seal, keys = self._masking(call)
        return seal.protect(call, release, keys)

    def _masking(self, call: Call) -> tuple[Seal, SitePart]:
        if self._seal is None:
            raise ConfigurationError("the site has no means to mask its answers", where=self.name)
        return self._seal, self._part(call.session, self._seal.keys, call.selection)


def _check_peers(part: SitePart, call: Call) -> None:
    """Refuse calls about aligned records to sites that did not seal their order, and plans of noise about them."""
    if part.common is None:
        return
    if not set(call.peers) <= part.common.sites:
        raise RefusedByPolicy("a site that takes part did not seal the order of the records", where=part.site)
    if isinstance(part, PlanReview):
        raise RefusedByPolicy(
            "a plan of noise counts a patient at one site, and aligned records are of the same patients at all",
            where=part.site,
            hint="Leave epsilon out, or fit over sites that hold different patients.",
        )


def _memory_of(part: SitePart) -> list[object]:
    """Return all that a part's later answers depend on and that its steps may replace."""
    return [part.state, part.within, part.data, *(getattr(part, name) for name in part.session_memory)]


def _check_unchanged(part: SitePart, state: Message | None, call: Call) -> None:
    """Refuse that a step addressed to each site changes what a part remembers: sites may not be asked alike."""
    if call.step.addressed == "each" and part.state is not state:
        part.state = state
        raise ConfigurationError("a step addressed to each site must leave the state as it is", where=call.step.name)


def _taken(data: Any, rows: Rows | None) -> Any:
    if rows is None:
        return data
    return data[rows] if isinstance(data, np.ndarray) else data.take(rows)


def _about(part: SitePart) -> bytes:
    """Return a hash of what a part works on; a state is given back to no other."""
    return hashlib.sha256(f"{part.method}\0{part.within}".encode()).digest()
