"""Sessions at a site: the records that each is about, its transcript, and the site parts that work for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from multicentre.core.calls import Call, Selection, encode_selection
from multicentre.core.differencing import Division, EarlierAnswers
from multicentre.core.guard_protocol import Gate, Rows, Seal
from multicentre.core.noise_plan import PlanReview
from multicentre.core.steps import Common, SitePart
from multicentre.core.transcript import SiteTranscript, SiteTranscripts
from multicentre.errors import ConfigurationError, DataError

_NEW_PLAN = "Make the plan of folds again."


@dataclass(frozen=True, eq=False)
class SessionRecords:
    """Records that a session is about.

    Parameters
    ----------
    selection : Selection, optional
        The selection as the call names it; None for all records.
    rows : array of int, optional
        Rows of the records in the site's data; None for all records.
    description : str
        Plans and folds that the records come from, as the site parts state them; empty for all records.
    common : Common, optional
        Places of aligned records in the order of all sites.
    divisions : tuple of Division
        Plans of folds behind the records, the outermost first.
    """

    selection: Selection | None = None
    rows: Rows | None = None
    description: str = ""
    common: Common | None = None
    divisions: tuple[Division, ...] = ()


@dataclass(frozen=True, eq=False)
class PartFactory:
    """Creates the site parts of sessions.

    Parameters
    ----------
    site : str
        Name of the site.
    data : object
        The site's data.
    gate : Gate
    seal : Seal, optional
    key : object, optional
        The key of the study's pseudonyms, for the parts that see identifiers.
    """

    site: str
    data: Any
    gate: Gate
    seal: Seal | None = None
    key: object = None

    def create(self, kind: type[SitePart], rows: Rows | None) -> SitePart:
        """Return a new part with the records at `rows`; only a part that sees identifiers gets them."""
        if kind is PlanReview:
            return PlanReview(self.site, self.gate.review)
        if self.seal is not None and kind is self.seal.keys:
            return self.seal.new_keys(self.site, self.gate.fields_of(_take(self._data_without_identifiers, rows)))
        part = kind(self.site, _take(self._data_of(kind), rows))
        if kind.sees_identifiers:
            part.key = self.key
        if kind.clips_persons or kind.counts_persons:
            part.persons = self.gate.persons(rows, all_named=kind.clips_persons)
        return part

    def _data_of(self, kind: type[SitePart]) -> Any:
        """Return the data that a part works on; data of several types give the part the type that it holds."""
        data = self.data if kind.sees_identifiers else self._data_without_identifiers
        return data.of_type(kind.holds) if hasattr(data, "of_type") else data

    @cached_property
    def _data_without_identifiers(self) -> Any:
        return self.data.without_identifier() if hasattr(self.data, "without_identifier") else self.data


class SiteSessions:
    """The sessions of one run at a site.

    Parameters
    ----------
    factory : PartFactory
    earlier_answers : EarlierAnswers
        Records of earlier answers, also in other runs over the same data.
    terms : str
        Hash of the study that the site agreed to; every transcript begins with it.

    Attributes
    ----------
    parts : dict of (str, type) to SitePart
        Site parts by session and class.
    transcripts : SiteTranscripts
    run : str
        Hash of the run, with which the transcripts of further sessions begin.
    """

    run: str = ""

    def __init__(self, factory: PartFactory, earlier_answers: EarlierAnswers, terms: str) -> None:
        self.parts: dict[tuple[str, type[SitePart]], SitePart] = {}
        self.transcripts = SiteTranscripts()
        self._records: dict[str, SessionRecords] = {}
        self._factory = factory
        self._earlier_answers = earlier_answers
        self._terms = terms

    def begin(self, session: str, selection: Selection | None) -> SiteTranscript:
        """Return the transcript of a session; its records are selected when it begins.

        Raises
        ------
        ConfigurationError
            The session is about other records, or the records were not divided.
        DataError
            The site has no record in the folds.
        """
        if session not in self._records:
            records = self._records[session] = self._select(selection)
            plan = None if selection is None else self.transcripts[selection.plan].value
            origin = [self._terms, selection and encode_selection(selection), records.description, plan]
            self.transcripts.begin(session, origin, self.run)
        if self._records[session].selection != selection:
            raise one_selection(session)
        return self.transcripts[session]

    def part(self, session: str, kind: type[SitePart], selection: Selection | None) -> SitePart:
        """Return the part of a session, created with the session's records when it is first needed.

        Raises
        ------
        DisclosureRefused
            The records differ from those of earlier answers by few patients.
        """
        self.begin(session, selection)
        records, key = self._records[session], (session, kind)
        if key not in self.parts:
            if kind.holds_patients and not kind.sees_identifiers and (records.common or selection is None):
                self._admit(records)
            part = self.parts[key] = self._factory.create(kind, records.rows)
            part.within, part.common, part.run = records.description, records.common, self.transcripts[session].run
            part.earlier_predictions = self._earlier_answers.predictions
        return self.parts[key]

    def rows_of(self, call: Call) -> Rows | None:
        """Return the rows of the session's records; None for all."""
        return self._records[call.session].rows

    def rows_behind(self, call: Call) -> Rows | None:
        """Return the rows that the answer to a call is about; None for all."""
        rows, used = self.rows_of(call), self.parts[call.session, call.step.part].used
        if call.step.releases.of_all_records or used is None:
            return rows
        return used if rows is None else rows[used]

    def check_unmasked_answer(self, call: Call) -> None:
        """Check the folds that an unmasked answer is about.

        Raises
        ------
        DisclosureRefused
            This answer and others, under whatever plan of folds, would be about few patients.
        """
        records, releases = self._records[call.session], call.step.releases
        if records.rows is None or not records.divisions or not call.step.part.holds_patients:
            return
        if releases.tells_of_patients() and not releases.individual:
            gate, n_records = self._factory.gate, len(self._factory.data)
            unmasked = self._earlier_answers.unmasked
            divisions, n_sites = records.divisions, call.n_peers
            unmasked.admit(records.rows, n_records, divisions, gate.least_behind, gate.patients_among, n_sites)

    def forget(self, session: str, is_forgotten: Callable[[type[SitePart]], bool]) -> None:
        """Forget a session and those of its parts for whose class `is_forgotten` returns True."""
        for key in [key for key in list(self.parts) if key[0] == session and is_forgotten(key[1])]:
            self.parts.pop(key, None)
        self._records.pop(session, None)
        self.transcripts.forget(session)

    def _admit(self, records: SessionRecords) -> None:
        factory, rows = self._factory, None if records.common is None else records.rows
        least, count_patients = factory.gate.least_behind, factory.gate.patients_among
        self._earlier_answers.admit(rows, factory.data, least, count_patients, factory.site)

    def _select(self, selection: Selection | None) -> SessionRecords:
        """Return the records that a selection names: those that a part of this site put into its folds."""
        if selection is None:
            return SessionRecords()
        outer = self._records.get(selection.plan, SessionRecords(selection))
        if outer.selection != selection.within:
            raise ConfigurationError(
                "selected records must come from a plan of folds in this run; this plan divided others or none",
                where=selection.plan,
                hint=_NEW_PLAN,
            )
        # A list first: in process, a session that is collected as garbage is forgotten at any moment, in any thread.
        parts = [self.parts.get(key) for key in list(self.parts) if key[0] == selection.plan]
        part = next((part for part in parts if part is not None and part.folds is not None), None)
        folds = np.zeros(0, dtype=np.int64) if part is None or part.folds is None else part.folds
        places = np.flatnonzero(np.isin(folds, selection.folds) & (folds >= 0))
        if part is None or not len(places):
            raise DataError(
                "the folds must hold at least one record of this site; they hold none",
                where=str(selection),
                hint=_NEW_PLAN,
            )
        return _selected(selection, outer, part, folds, places)


def one_selection(session: str) -> ConfigurationError:
    """Return the error of a session that is called for other records than before."""
    return ConfigurationError(
        "all calls of a session must be about one selection of records; got another selection",
        where=session,
        hint="Begin a new session for other records.",
    )


def _selected(selection: Selection, outer: SessionRecords, part: SitePart, folds: Rows, places: Rows) -> SessionRecords:
    """Return the records at `places` among the outer records, or, from a part that aligns, in the common order."""
    fold_numbers = ".".join(map(str, sorted({fold for fold in selection.folds if fold >= 0})))
    prefix = f"{outer.description}/" if outer.description else ""
    description = f"{prefix}{part.method}/{part.division}:{fold_numbers}"
    if part.alignment is not None:
        places, common = part.alignment
        rows = places if outer.rows is None else outer.rows[places]
        return SessionRecords(selection, rows, description, common, outer.divisions)
    divided = np.arange(len(folds)) if outer.rows is None else outer.rows
    divisions = (*outer.divisions, Division(folds, divided, part.division, part.pieces))
    return SessionRecords(selection, divided[places], description, None, divisions)


def _take(data: Any, rows: Rows | None) -> Any:
    if rows is None:
        return data
    return data[rows] if isinstance(data, np.ndarray) else data.take(rows)
