"""What sites sign and mask holds for one run and one attempt, whatever a coordinator carries from one to another."""

import dataclasses
import itertools

import numpy as np
import pytest

from multicentre.core.calls import Call, Mask
from multicentre.core.transcript import SiteTranscript
from multicentre.engines.remote.opening import Opening
from multicentre.engines.remote.packing import pack_nonces, unpack_nonces
from multicentre.errors import ConfigurationError, IntegrityError, MessageError, MulticentreError
from multicentre.privacy.secure_sum.messages import Invitation
from multicentre.privacy.secure_sum.rounds import _stacked
from multicentre.privacy.secure_sum.site import MAX_SUMS, MaskingKeys
from support.engines import runtimes_of
from support.masking_parts import SITES, chained, masking_keys
from support.toy_method import Guess, MeanSite, federate, toy_sites

OPENING = Opening("run-1", 0, "study", "terms", SITES, True)


def three_sites():
    return dict(zip(SITES, toy_sites().values(), strict=False))


def run_of(federation):
    return {site: runtime.sessions.run for site, runtime in runtimes_of(federation).items()}


def test_every_site_contributes_to_the_name_of_the_run():
    names = set()
    for _ in range(4):
        with federate(three_sites()) as federation:
            assert len(set(run_of(federation).values())) == 1
            names.add(run_of(federation)["a"])
    assert len(names) == 4
    with federate(three_sites()) as federation:
        runtimes = runtimes_of(federation)
        before, nonces = run_of(federation)["a"], {site: one.nonce for site, one in runtimes.items()}
        for site in "bc":
            runtimes["a"].join({**nonces, site: "other"})
            assert runtimes["a"].sessions.run != before
        for wrong in ({**nonces, "a": "other"}, {site: nonces[site] for site in "bc"}, {}):
            with pytest.raises(IntegrityError, match="random number that this site drew"):
                runtimes["a"].join(wrong)


def test_run_attempt_and_analyst_are_part_of_the_name_of_the_run():
    openings = [
        OPENING,
        dataclasses.replace(OPENING, attempt=1),
        dataclasses.replace(OPENING, run="run-2"),
        dataclasses.replace(OPENING, terms="other"),
        dataclasses.replace(OPENING, sites=("a", "b")),
    ]
    with federate(three_sites()) as federation:
        runtime, names = runtimes_of(federation)["a"], set()
        for opening in openings:
            runtime.opening = opening.digest
            runtime.join({"a": runtime.nonce, "b": "1f"})
            names.add(runtime.sessions.run)
    assert len(names) == len(openings)


def test_without_a_run_no_site_agrees_on_keys():
    terms, _ = chained()
    part = masking_keys("a", run="")
    with pytest.raises(ConfigurationError, match="exchanged random numbers"):
        part.advertise(terms)


def test_a_transcript_and_the_ledger_begin_with_the_run():
    assert SiteTranscript("0.1", [], "one").value != SiteTranscript("0.1", [], "other").value
    with federate(three_sites(), secure_sum=True) as federation:
        federation.begin(MeanSite).sum(MeanSite.residuals, Guess(np.zeros(3), 0))
        entries = [entry for entry in federation.ledgers["a"].entries if entry.get("step") == "residuals"]
        assert {entry["run"] for entry in entries} == {run_of(federation)["a"]}


def test_commands_that_are_no_random_numbers_are_refused():
    assert unpack_nonces(pack_nonces({"a": "1f"})) == {"a": "1f"}
    assert unpack_nonces({"action": "keep"}) is None
    for wrong in (None, ["1f"], {"a": 7}):
        with pytest.raises(MessageError, match="texts by site"):
            unpack_nonces({"action": "join", "nonces": wrong})


# --- a coordinator that mixes runs, attempts and orders ---------------------------------------------------------------


class Play:
    """Sites in two runs, with two agreements each; keys of every site are collected under every choice."""

    def __init__(self, n_sums=2):
        self.names = [f"{name}{attempt}" for name in ("run-1 ", "run-2 ") for attempt in (0, 1)]
        self.terms = Invitation("study", "0.1", "first", SITES, len(SITES), MAX_SUMS, 0)
        self.parts = {(run, site): masking_keys(site, run=run) for run in self.names for site in SITES}
        self.keys = {place: part.advertise(self.terms) for place, part in self.parts.items()}


@pytest.mark.parametrize("seed", range(40))
def test_keys_of_two_runs_or_attempts_are_never_accepted_together(seed):
    """Each site gets a list of keys, each of any run; a site accepts a list only if all keys are of its own run."""
    rng, play = np.random.default_rng(seed), Play()
    for run, site in play.parts:
        sources = dict(zip(SITES, rng.choice(play.names, len(SITES)), strict=True))
        if rng.random() < 0.3:
            sources = dict.fromkeys(SITES, run)
        public = _stacked(play.terms, {name: play.keys[source, name] for name, source in sources.items()})
        if set(sources.values()) == {run}:
            play.parts[run, site].agree(public)
            assert play.parts[run, site]._agreement.is_ready
        else:
            with pytest.raises((IntegrityError, ConfigurationError)):
                play.parts[run, site].agree(public)
            assert not play.parts[run, site]._agreement.is_ready


MOVES = ("call", "other request", "other session", "begin again", "other run", "leave out")


@pytest.mark.parametrize("seed", range(25))
def test_no_order_of_calls_in_two_runs_lets_differing_sites_share_masks(seed):
    """A coordinator draws moves for each site; two sites mask alike only if both saw the same calls in the same run."""
    rng = np.random.default_rng(seed)
    histories = {}
    for site in SITES:
        run, session, history = "run-1", "0.1", []
        transcript = SiteTranscript(session, [], run)
        for place in range(4):
            move = rng.choice(MOVES, p=[0.75, 0.05, 0.05, 0.05, 0.05, 0.05])
            if move in ("other session", "begin again", "other run"):
                session = "0.2" if move == "other session" else session
                run = "run-2" if move == "other run" else run
                transcript, history = SiteTranscript(session, [], run), []
            if move == "leave out":
                continue
            request = Guess(np.full(3, float(move == "other request")), place)
            call = Call("study", session, place, MeanSite.residuals, request, SITES, Mask("first", 0, 3))
            transcript.enter(call, site)
            history.append((place, float(request.mean[0])))
        histories[site] = (run, session, tuple(history)), transcript.value
    for (one, mark), (other, mark_of_other) in itertools.combinations(histories.values(), 2):
        assert (mark == mark_of_other) == (one == other)


def test_sums_over_sites_of_two_runs_are_refused_by_all_sites():
    with federate(three_sites(), secure_sum=True) as one, federate(three_sites(), secure_sum=True) as other:
        sessions = [opened.begin(MeanSite) for opened in (one, other)]
        answers = {}
        for opened, session in zip((one, other), sessions, strict=True):
            terms = Invitation("study", session.name, "first", SITES, len(SITES), MAX_SUMS, 0)
            terms = dataclasses.replace(terms, study=session.terms.study)
            answers[opened] = session.collect(MaskingKeys.advertise, terms)
        mixed = _stacked(terms, {**answers[one], "c": answers[other]["c"]})
        for session in sessions:
            with pytest.raises(MulticentreError, match=r"signature of this site for this run|those that it sent"):
                session.collect(MaskingKeys.agree, mixed)
