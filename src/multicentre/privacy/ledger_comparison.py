"""Comparison of several sites' ledgers: calls in which the sites received different requests or acted differently.

All sites use the same names of sessions and numbers of calls, so the entries of one call have the same study, session
and call. A ledger contains a session once per run. The runs of two ledgers are paired in order, so that as many calls
as possible agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from multicentre.privacy.ledger import Entry

# Values that are equal at sites with equal requests, except for steps with separate requests per site.
_SAME = ("method", "step", "protection", "addressed", "records", "counted", "peers", "request", "event")
# If a step has separate requests per site, requests may differ, and some sites may refuse.
_OF_EACH = ("request", "event")
_NO_TIME = "1970-01-01T00:00:00+00:00"
Key = tuple[str, str]
Run = dict[int, Entry]


@dataclass(frozen=True)
class Difference:
    """Call that is not the same in all ledgers.

    Parameters
    ----------
    study, session : str
    call : int
        Number of the call within the session.
    step : str
        Method and step.
    kind : str
        Kind of difference:

        - "missing": a call that a site did not receive;
        - "session": a session that some ledgers do not contain although its calls do not exclude these sites, reported
          at its first call;
        - "alone": a call to a single site;
        - "transcript": the first call after which the sites' transcripts differ although the requests agree;
        - otherwise the name of a value that differs ("request", "peers", "event", ...).
    values : mapping of str to str
        Content of each site's ledger; "" for a missing call or session.
    """

    study: str
    session: str
    call: int
    step: str
    kind: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Comparison:
    """Result of :func:`compare_ledgers`.

    Parameters
    ----------
    n_calls : int
        Number of calls that two or more ledgers contain.
    n_unknown : int
        Number of entries without the hash of a request.
    differences : tuple of Difference
        Differences in the order of sessions and calls. The sites of a session diverge at the first one.
    """

    n_calls: int
    n_unknown: int
    differences: tuple[Difference, ...]


def compare_ledgers(ledgers: Mapping[str, Iterable[Entry]]) -> Comparison:
    """Compare ledgers by site, call by call.

    Parameters
    ----------
    ledgers : mapping of str to iterable of entries
        Ledgers by site. If the names differ from those at the coordinator, some missing calls are not detected.

    Examples
    --------
    >>> one = {"time": "2026-01-01T00:00:00", "study": "pilot", "session": "0.1", "call": 0, "method": "m", "step": "s"}
    >>> comparison = compare_ledgers({"lyon": [one | {"request": "0a"}], "oslo": [one | {"request": "0b"}]})
    >>> comparison.n_calls, comparison.differences[0].kind
    (1, 'request')
    """
    runs = {site: _runs_of(entries) for site, entries in ledgers.items()}
    keys = dict.fromkeys(key for of_site in runs.values() for key in of_site)
    differences: list[Difference] = []
    n_calls = 0
    for key in keys:
        for paired in _paired({site: of_site.get(key, []) for site, of_site in runs.items()}):
            calls = sorted({call for run in paired.values() for call in run})
            n_calls += sum(sum(call in run for run in paired.values()) > 1 for call in calls)
            differences += _compared(key, paired, calls)
    every_run = (run for of_site in runs.values() for of_session in of_site.values() for run in of_session)
    n_unknown = sum("request" not in entry for run in every_run for entry in run.values())
    return Comparison(n_calls, n_unknown, tuple(differences))


def _runs_of(entries: Iterable[Entry]) -> dict[Key, list[Run]]:
    """Return the entries about calls by session: one mapping from call to entry per run, the oldest first."""
    runs: defaultdict[Key, list[Run]] = defaultdict(list)
    for entry in entries:
        if "call" not in entry:
            continue
        of_session = runs[str(entry.get("study")), str(entry.get("session"))]
        if not of_session or entry["call"] <= next(reversed(of_session[-1])):
            of_session.append({})
        of_session[-1][entry["call"]] = entry
    return dict(runs)


def _paired(runs: Mapping[str, Sequence[Run]]) -> Iterator[dict[str, Run]]:
    """Yield the runs of one session that belong together, by site; an empty run for a site without it."""
    longest = max(runs, key=lambda site: len(runs[site]))
    places = {site: _places(runs[longest], of_site) for site, of_site in runs.items()}
    for place, run in enumerate(runs[longest]):
        aligned = {site: next((one for one, at in places[site] if at == place), {}) for site in runs}
        yield aligned | {longest: run}


def _places(runs: Sequence[Run], others: Sequence[Run]) -> list[tuple[Run, int]]:
    """Return the place among `runs` of each of the other runs, in ascending order, so that most calls agree."""
    best: list[tuple[float, list[tuple[Run, int]]]] = [(0.0, [])] * (len(runs) + 1)
    for n_before, other in enumerate(others):
        row: list[tuple[float, list[tuple[Run, int]]]] = [(float("-inf"), [])] * (len(runs) + 1)
        for place in range(n_before, len(runs)):
            score, before = best[place]
            extended = (score + _similarity(runs[place], other), [*before, (other, place)])
            row[place + 1] = max(row[place], extended, key=lambda one: one[0])
        best = row
    return max(best, key=lambda one: one[0])[1]


def _similarity(run: Run, other: Run) -> float:
    """Return the number of common calls of two runs, plus a number below one that is larger for close start times."""
    shared: int = sum(
        call in other and other[call].get("request") == entry.get("request") for call, entry in run.items()
    )
    began, other_began = (
        datetime.fromisoformat(str(next(iter(one.values())).get("time", _NO_TIME))) for one in (run, other)
    )
    seconds: float = abs((began - other_began).total_seconds())
    return shared + 0.5 / (1.0 + seconds)


def _compared(key: Key, runs: Mapping[str, Run], calls: Sequence[int]) -> Iterator[Difference]:
    has_diverged = False
    lacking = _lacking(runs)
    for call in calls:
        entries = {site: run[call] for site, run in runs.items() if call in run}
        step = " or ".join(dict.fromkeys(f"{e.get('method')}.{e.get('step')}" for e in entries.values()))
        if absent := _absent(call, entries, runs):
            yield Difference(*key, call, step, "missing", dict.fromkeys(absent, ""))
        if lacking and call == calls[0]:
            yield Difference(*key, call, step, "session", dict.fromkeys(lacking, ""))
        if not lacking and not absent and _is_alone(entries, len(runs)):
            yield Difference(*key, call, step, "alone", dict.fromkeys(entries, "called alone"))
        kinds = [kind for kind in _SAME if _differs(kind, entries)]
        if _is_for_each(entries.values()):
            kinds = [kind for kind in kinds if kind not in _OF_EACH]
        if not has_diverged and _differs("transcript", entries):
            has_diverged = True
            kinds = kinds or ["transcript"]
        for kind in kinds:
            yield Difference(*key, call, step, kind, {site: _text(entry.get(kind)) for site, entry in entries.items()})


def _lacking(runs: Mapping[str, Run]) -> list[str]:
    """Return the sites whose ledgers do not contain a session, although no call of it excludes them.

    A session whose steps all have separate requests per site may legitimately reach only some sites.
    """
    entries = [entry for run in runs.values() for entry in run.values()]
    if all(entry.get("addressed") == "each" for entry in entries):
        return []
    peers = {peer for entry in entries for peer in entry.get("peers", ())}
    return [site for site, run in runs.items() if not run and site not in peers]


def _is_alone(entries: Mapping[str, Entry], n_ledgers: int) -> bool:
    """Return whether a call to all sites of a session reached only one of several compared sites."""
    peers = {peer for entry in entries.values() for peer in entry.get("peers", ())}
    return n_ledgers > 1 and len(entries) == len(peers) == 1 and not _is_for_each(entries.values())


def _is_for_each(entries: Iterable[Entry]) -> bool:
    return any(entry.get("addressed") == "each" for entry in entries)


def _absent(call: int, entries: Mapping[str, Entry], runs: Mapping[str, Run]) -> list[str]:
    """Return the sites without an entry about a call in which they took part according to the other ledgers."""
    peers = {peer for entry in entries.values() for peer in entry.get("peers", ())}
    outside = {site for site, run in runs.items() if site not in peers and run and min(run) < call < max(run)}
    each = _is_for_each(entries.values())
    return [site for site in runs if site not in entries and (site in peers or (site in outside and not each))]


def _differs(kind: str, entries: Mapping[str, Entry]) -> bool:
    """Return whether a value differs; missing hashes are ignored, other missing values count as empty."""
    values = [_text(entry.get(kind)) for entry in entries.values()]
    if kind in ("request", "transcript", "peers"):
        values = [value for value in values if value]
    return len(set(values)) > 1


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
