"""What a coordinator sends, whom it counts, and what it writes down: over an engine that only notes its calls."""

from dataclasses import replace

import numpy as np
import pytest

from multicentre.core.calls import Lost, Mask, Refused, Selection, StateCommand
from multicentre.core.consortium import Consortium as Federation
from multicentre.core.messages import Nothing
from multicentre.core.noise_plan import Noise, Plan, Planned, PlanReview, PlanShown
from multicentre.core.rounds import Listener, Rounds
from multicentre.core.run_terms import Terms
from multicentre.core.steps import Acknowledgement
from multicentre.core.storage import Store
from multicentre.core.summation import PlainSummation
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    LeftOutWarning,
    MessageError,
    QuorumLost,
    RefusedByPolicy,
    SiteBehind,
    SiteFailed,
    StepFailed,
)
from support.toy_method import Guess, MeanSite, Residuals, Size, federate
from support.toy_private import ClippedSite

ASK = Guess(np.zeros(3), 0)
NAMES = ("bern", "lyon", "oslo", "roma")
NOISE = Noise("gaussian", {"total": 2.0, "patients_counted": 2.0})


class NotingEngine:
    """Notes every call and errand, and answers as a test says."""

    def __init__(self, sites=NAMES, **answers):
        self.sites = sites
        self.answers = answers
        self.calls = []
        self.limits = []
        self.errands = []
        self.closed = 0
        self.unheard = ()

    def exchange(self, calls, time_limit_s):
        self.calls.append(dict(calls))
        self.limits.append(time_limit_s)
        return {site: self.answers.get(site) or _usual(call) for site, call in calls.items()}

    def run_command(self, command, sites):
        self.errands.append((command, sites))
        if command.action == "restore" and command.number in self.unheard:
            raise SiteBehind("not yet heard", where="lyon")

    def close(self):
        self.closed += 1


def _usual(call):
    answers = {"size": Size(2.0), "residuals": Residuals(np.ones(3), 5, 1), "review": Acknowledgement()}
    return answers[call.step.name]


class Ear(Listener):
    def __init__(self):
        self.heard = []

    def site_lost(self, site, reason):
        self.heard.append((site, reason))

    def round_ended(self, name, number, metrics):
        self.heard.append((name, number, dict(metrics)))

    def rounds_began(self, name, n_rounds, done):
        self.heard.append((name, n_rounds, done))

    def rounds_ended(self, name, number):
        self.heard.append((name, number))


def gone(site="x", hint=""):
    return Lost(QuorumLost("no answer", where=site, hint=hint))


def test_a_call_says_all_that_a_site_must_know():
    engine = NotingEngine()
    federation = Federation(engine, terms=Terms(study="bones", time_limit_s=7.0))
    first, second = federation.begin(MeanSite), federation.begin(MeanSite)
    first.ask(MeanSite.size, ASK)
    first.collect(
        replace(MeanSite.residuals, addressed="each"), ASK, mask=Mask("first", 1, 2), to=["roma", "lyon", "roma"]
    )
    second.ask(MeanSite.size, ASK)
    assert engine.limits == [7.0] * 3
    assert [list(calls) for calls in engine.calls] == [list(NAMES), ["lyon", "roma"], list(NAMES)]
    one, two, three = (calls["lyon"] for calls in engine.calls)
    assert (one.study, one.session, one.sequence, one.step, one.request) == ("bones", "0.1", 0, MeanSite.size, ASK)
    assert (one.peers, one.mask, one.noise, one.selection) == (NAMES, None, None, None)
    assert (two.session, two.sequence, two.peers, two.mask) == ("0.1", 1, ("lyon", "roma"), Mask("first", 1, 2))
    assert (three.session, three.sequence) == ("0.2", 0)


def test_each_site_can_have_an_ask_of_its_own_and_bytes_are_counted_for_each():
    engine = NotingEngine()
    federation = Federation(engine).begin(MeanSite)
    requests = {site: Guess(np.zeros(i), i) for i, site in enumerate(NAMES)}
    each = replace(MeanSite.size, addressed="each")
    federation.collect(each, requests)
    assert [engine.calls[0][site].request for site in NAMES] == list(requests.values())
    assert federation.traffic.bytes_to_sites == {"size": 8 * (0 + 1 + 2 + 3) + 4 * 8}
    with pytest.raises(MessageError, match=r"^size: the message must be Guess; got Nothing"):
        federation.collect(each, requests | {"lyon": Nothing()})
    assert len(engine.calls) == 1


def test_a_step_that_is_addressed_to_all_sites_is_put_to_all_with_one_ask():
    engine = NotingEngine()
    federation = Federation(engine).begin(MeanSite)
    with pytest.raises(ConfigurationError, match="must be sent to all sites with one message"):
        federation.collect(MeanSite.size, {site: Guess(np.zeros(3), i) for i, site in enumerate(NAMES)})
    with pytest.raises(ConfigurationError, match="must be sent to all sites with one message"):
        federation.ask(MeanSite.size, ASK, to=NAMES[:2])
    assert not engine.calls


def test_answers_of_lost_sites_cost_no_bytes():
    federation = Federation(NotingEngine(oslo=gone()), terms=Terms(quorum=1)).begin(MeanSite)
    assert list(federation.ask(MeanSite.size, ASK)) == ["bern", "lyon", "roma"]
    assert federation.traffic.bytes_from_sites == {"size": 3 * 8}
    assert federation.traffic.bytes_to_sites == {"size": 4 * 32}


def test_a_sum_is_over_the_sites_that_answered():
    federation = Federation(NotingEngine(oslo=gone()), terms=Terms(quorum=3)).begin(MeanSite)
    total = federation.sum(MeanSite.residuals, ASK)
    assert (total.total.tolist(), total.n) == ([3.0] * 3, 15)
    assert federation.noise_spread == pytest.approx(3**0.5)


@pytest.mark.parametrize("quorum", [3, 4, "all"])
def test_the_quorum_of_selected_sites_is_at_most_all_of_them(quorum):
    """A study's quorum counts all sites, and a fold may lie at fewer."""
    engine = NotingEngine()
    chosen = Federation(engine, terms=Terms(quorum=quorum)).begin(MeanSite).select([0], ["roma", "lyon"])
    assert chosen.needed == 2
    session = chosen.begin(MeanSite)
    assert list(session.ask(MeanSite.size, ASK)) == ["lyon", "roma"]
    engine.answers["lyon"] = gone("lyon")
    with pytest.raises(QuorumLost, match=r"^lyon: 1 of 2 sites answered, the study needs 2; no answer"):
        session.ask(MeanSite.size, ASK)


def test_a_low_quorum_stays_low_in_a_selection():
    chosen = Federation(NotingEngine(lyon=gone()), terms=Terms(quorum=1)).begin(MeanSite).select([0], ["roma", "lyon"])
    assert chosen.needed == 1
    assert list(chosen.begin(MeanSite).ask(MeanSite.size, ASK)) == ["roma"]


def test_a_selection_names_its_plan_and_its_folds():
    engine = NotingEngine()
    federation = Federation(engine)
    assert (federation.selection, federation.name) == (None, "0")
    plan = federation.begin(MeanSite)
    chosen = plan.select([2, 0], ["oslo", "lyon", "oslo"])
    assert chosen.selection == Selection("0.1", (2, 0))
    assert chosen.sites == ("lyon", "oslo")
    inner = chosen.begin(MeanSite)
    inner.ask(MeanSite.size, ASK)
    assert engine.calls[-1]["oslo"].selection == chosen.selection
    assert inner.select([1], ["oslo"]).selection == Selection(inner.name, (1,), chosen.selection)
    assert plan.is_about(federation)
    assert not plan.is_about(chosen)
    assert inner.is_about(chosen)
    assert not Federation(NotingEngine()).is_about(federation)
    with pytest.raises(ConfigurationError, match=r"^to: .*no such site takes part: graz, wien"):
        plan.select([0], ["graz", "lyon", "wien"])


def test_losses_are_told_with_their_reasons_and_remedies():
    ear = Ear()
    federation = Federation(
        NotingEngine(lyon=gone("lyon", "Wait."), bern=Refused(SiteFailed("broke", hint="Read the log."))),
        terms=Terms(quorum=3),
        listener=ear,
    ).begin(MeanSite)
    with pytest.raises(QuorumLost) as caught:
        federation.ask(MeanSite.size, ASK)
    assert ear.heard == [("bern", "broke. Read the log. [MC602]"), ("lyon", "lyon: no answer. Wait. [MC601]")]
    assert caught.value.where == "bern, lyon"
    assert caught.value.what == "2 of 4 sites answered, the study needs 3; bern: broke; lyon: no answer"
    assert (
        caught.value.hint == "Read the log. Wait. Bring the site back and resume the run, or lower the study's quorum."
    )


def test_failures_at_all_sites_are_not_a_loss_of_sites():
    broken = {site: Refused(SiteFailed("the step size of mean failed (ValueError)", hint="Log.")) for site in NAMES}
    with pytest.raises(StepFailed, match=r"\(ValueError\) at all 4 sites") as caught:
        Federation(NotingEngine(**broken), terms=Terms(quorum=2)).begin(MeanSite).ask(MeanSite.size, ASK)
    assert "quorum" not in str(caught.value)
    broken["roma"] = Refused(SiteFailed("the step size of mean failed (KeyError)"))
    with pytest.raises(
        StepFailed, match=r"^.*at all 4 sites; bern, lyon, oslo: .*\(ValueError\); roma: .*\(KeyError\)"
    ) as caught:
        Federation(NotingEngine(**broken), terms=Terms(quorum=2)).begin(MeanSite).ask(MeanSite.size, ASK)
    assert "quorum" not in str(caught.value)
    broken["roma"] = gone("roma")
    with pytest.raises(QuorumLost, match="lower the study's quorum"):
        Federation(NotingEngine(**broken), terms=Terms(quorum=2)).begin(MeanSite).ask(MeanSite.size, ASK)


@pytest.mark.parametrize("kind", ["MemoryError", "ConnectionResetError", "OSError"])
def test_sites_that_all_lack_a_resource_can_resume_and_need_no_lower_quorum(kind):
    broken = {site: Refused(SiteFailed(f"the step size of mean failed ({kind})")) for site in NAMES}
    with pytest.raises(QuorumLost, match="Check memory, disk and connections") as caught:
        Federation(NotingEngine(**broken), terms=Terms(quorum=2)).begin(MeanSite).ask(MeanSite.size, ASK)
    assert "quorum" not in str(caught.value)


def test_the_willing_answer_and_others_stay():
    refusals = {"lyon": Refused(RefusedByPolicy("no", where="lyon")), "oslo": Refused(DisclosureRefused("too few"))}
    federation = Federation(NotingEngine(**refusals)).begin(MeanSite)
    assert list(federation.ask(MeanSite.size, ASK, skip_refusals=True)) == ["bern", "roma"]
    assert federation.sites == NAMES
    with pytest.raises(RefusedByPolicy) as caught:
        federation.ask(MeanSite.size, ASK)
    assert caught.value.__notes__ == ["oslo: too few. [MC501]"]
    broken = Federation(NotingEngine(lyon=Refused(DataError("bad", where="lyon")))).begin(MeanSite)
    with pytest.raises(DataError, match=r"^lyon: bad"):
        broken.ask(MeanSite.size, ASK, skip_refusals=True)


def test_a_plan_is_shown_before_anything_else_and_every_call_carries_its_noise():
    engine = NotingEngine()
    noise = Noise("gaussian", {"total": 2.0, "patients_counted": 2.0})
    plan = Plan((Planned(ClippedSite.clipped_sum, noise, 1),))
    federation = Federation(engine).begin(ClippedSite, plan=plan)
    assert federation.plan is plan
    (calls,) = engine.calls
    shown = calls["lyon"].request
    assert isinstance(shown, PlanShown)
    assert (shown.method, shown.steps, calls["lyon"].step.name) == ("toy-private-mean", ("clipped_sum",), "review")
    answer = ClippedSite.clipped_sum.releases(np.ones(2), 3.0)
    engine.answers = dict.fromkeys(NAMES, answer)
    assert federation.sum(ClippedSite.clipped_sum, Nothing()).patients_counted == 12.0
    assert engine.calls[1]["roma"].noise == noise
    with pytest.raises(ConfigurationError, match="planned 1 times"):
        federation.sum(ClippedSite.clipped_sum, Nothing())
    engine.answers = {}
    again = federation.federation.begin(ClippedSite, plan=plan)
    engine.answers = dict.fromkeys(NAMES, answer)
    assert again.sum(ClippedSite.clipped_sum, Nothing()).patients_counted == 12.0
    assert federation.federation.begin(ClippedSite).plan is None


def test_a_planned_step_is_called_as_often_as_planned_and_no_more():
    engine = NotingEngine()
    noise = Noise("gaussian", {"total": 2.0, "patients_counted": 2.0})
    federation = Federation(engine).begin(ClippedSite, plan=Plan((Planned(ClippedSite.clipped_sum, noise, 3),)))
    engine.answers = dict.fromkeys(NAMES, ClippedSite.clipped_sum.releases(np.ones(2), 3.0))
    for _ in range(3):
        assert federation.sum(ClippedSite.clipped_sum, Nothing()).patients_counted == 12.0
    with pytest.raises(ConfigurationError, match="planned 3 times"):
        federation.sum(ClippedSite.clipped_sum, Nothing())


def test_sums_are_prepared_for_the_part_the_sites_and_the_plan():
    prepared = []

    class Preparing(PlainSummation):
        def prepare(self, part, n_sites, plan):
            prepared.append((part, n_sites, plan))

    plan = Plan(())
    Federation(NotingEngine(), summation=Preparing()).begin(MeanSite, plan=plan)
    assert prepared == [(MeanSite, 4, plan)]


def test_sums_in_clear_are_of_the_handle_that_asked_for_them():
    with federate(secure_sum=True) as federation:
        assert federation.protection == "masked"
        assert federation.unmasked().protection == "unmasked"
        assert federation.protection == "masked"
        assert isinstance(federation.unmasked().summation, PlainSummation)
        assert repr(federation) == "Federation(site-0, site-1, site-2; sums masked, quorum all)"


def test_a_handle_closes_its_engine_and_can_be_counted():
    engine = NotingEngine()
    with Federation(engine) as federation:
        assert (len(federation), list(federation)) == (4, list(NAMES))
        assert engine.closed == 0
    assert engine.closed == 1


def test_what_sites_remember_is_forgotten_with_the_handle():
    engine = NotingEngine()
    handle = Federation(engine).begin(MeanSite)
    session = handle.name
    del handle
    assert engine.errands == [(StateCommand("forget", session, MeanSite), NAMES)]


def fit(engine, folder, n_rounds=3, parameters="p", listener=None, quorum="all"):
    """Run some rounds and return the loop."""
    federation = Federation(engine, store=Store(folder), listener=listener or Listener(), terms=Terms(quorum=quorum))
    rounds = federation.begin(MeanSite, parameters).rounds(n_rounds, Guess, lambda: ASK)
    for number_ in rounds:
        rounds.record(step=number_)
        rounds.state = Guess(np.full(3, float(number_)), number_)
    return rounds


def test_rounds_are_kept_at_the_sites_and_restored_from_them(tmp_path):
    engine, ear = NotingEngine(), Ear()
    first = fit(engine, tmp_path, listener=ear)
    keeps = [
        (command.action, command.session, command.part, command.name, command.number) for command, _ in engine.errands
    ]
    assert keeps[:4] == [("keep", "0.1", MeanSite, "0.1-rounds", number_) for number_ in range(4)]
    assert {sites for _, sites in engine.errands} == {NAMES}
    assert first.history == [{"round": float(number_), "step": float(number_)} for number_ in (1, 2, 3)]
    name = "0.1-rounds"
    assert ear.heard == [(name, 3, 0), *[(name, i, {"step": float(i)}) for i in (1, 2, 3)], (name, 3)]
    again = NotingEngine()
    resumed = fit(again, tmp_path, n_rounds=4)
    assert (resumed.number, resumed.history[:3], resumed.history[3]["round"]) == (4, first.history, 4.0)
    assert [command.number for command, _ in again.errands if command.action == "restore"] == [3]


def test_a_run_of_other_parameters_is_not_taken_up(tmp_path):
    fit(NotingEngine(), tmp_path)
    with pytest.raises(ConfigurationError, match=r"^0\.1-rounds: .*one with other parameters"):
        fit(NotingEngine(), tmp_path, parameters="q")


def test_a_run_goes_one_round_back_where_a_site_is_behind_and_no_further(tmp_path):
    fit(NotingEngine(), tmp_path)
    engine = NotingEngine()
    engine.unheard = {3}
    assert fit(engine, tmp_path).number == 3
    assert [command.number for command, _ in engine.errands if command.action == "restore"] == [3, 2]
    engine.unheard = {2, 3}
    with pytest.raises(SiteBehind):
        fit(engine, tmp_path)


def test_a_run_of_one_round_whose_beginning_is_gone_is_not_started_over(tmp_path):
    fit(NotingEngine(), tmp_path, n_rounds=1)
    next(tmp_path.glob("*.000000.state")).unlink()
    engine = NotingEngine()
    engine.unheard = {1}
    with pytest.raises(SiteBehind):
        fit(engine, tmp_path)


def test_a_run_whose_sites_are_behind_its_very_beginning_starts_over(tmp_path):
    fit(NotingEngine(), tmp_path, n_rounds=0)
    engine = NotingEngine()
    engine.unheard = {0}
    rounds = fit(engine, tmp_path, n_rounds=2)
    assert (rounds.number, len(rounds.history)) == (2, 2)
    assert [command.name for command, _ in engine.errands if command.action == "reset"] == ["0.1-rounds"]


def test_sites_lost_before_a_break_stay_out_and_missing_ones_are_named(tmp_path):
    federation = Federation(NotingEngine(oslo=gone()), store=Store(tmp_path), terms=Terms(quorum=1)).begin(MeanSite)
    federation.ask(MeanSite.size, ASK)
    federation.once("sizes", Guess, lambda: ASK)
    taken_up = Federation(NotingEngine(), store=Store(tmp_path), terms=Terms(quorum=1)).begin(MeanSite)
    assert taken_up.once("sizes", Guess, lambda: pytest.fail("asked again")) is not None
    assert taken_up.sites == ("bern", "lyon", "roma")
    fewer = Federation(NotingEngine(("oslo", "roma")), store=Store(tmp_path), terms=Terms(quorum=1)).begin(MeanSite)
    with pytest.raises(QuorumLost, match=r"^bern, lyon: .*it had more sites"):
        fewer.once("sizes", Guess, lambda: ASK)


def test_results_of_one_fit_are_kept_apart_by_name_and_apart_from_its_rounds(tmp_path):
    def begin():
        return Federation(NotingEngine(), store=Store(tmp_path)).begin(MeanSite)

    federation = begin()
    for number_, name in enumerate(("means", "scales")):
        federation.once(name, Guess, lambda number_=number_: Guess(np.zeros(3), number_))
    again = begin()
    kept = [again.once(name, Guess, lambda: pytest.fail("asked again")).seed for name in ("means", "scales")]
    assert kept == [0, 1]


def test_a_site_keeps_and_restores_its_state_with_its_selection(tmp_path):
    def run(engine):
        federation = Federation(engine, store=Store(tmp_path)).begin(MeanSite).select([1], ["roma", "lyon"])
        federation.begin(MeanSite).once("means", Guess, lambda: ASK)
        return {(command.action, command.selection, sites) for command, sites in engine.errands if command.name}

    places = Selection("0.1", (1,)), ("lyon", "roma")
    assert run(NotingEngine()) == {("keep", *places)}
    assert run(NotingEngine()) == {("restore", *places)}


def test_a_loop_without_a_store_keeps_its_figures_only():
    engine = NotingEngine()
    rounds = Federation(engine).begin(MeanSite).rounds(2, Guess, lambda: ASK)
    assert isinstance(rounds, Rounds)
    for number_ in rounds:
        assert (rounds.metrics, rounds.stopped) == ({}, False)
        rounds.record(a=number_, b=0)
        rounds.record(a=7)
        assert rounds.metrics == {"a": 7.0, "b": 0.0}
    assert rounds.history == [{"round": 1.0, "a": 7.0, "b": 0.0}, {"round": 2.0, "a": 7.0, "b": 0.0}]
    assert {command.action for command, _ in engine.errands} <= {"forget"}


# Answers that several fits share


def test_an_answer_that_depends_only_on_the_sites_is_requested_once():
    whole = Federation(NotingEngine(), shared={})
    made = []

    def request(session, about="sex"):
        return session.shared("levels", about, lambda: made.append(about) or len(made))

    first, second = whole.begin(MeanSite), whole.begin(MeanSite)
    assert [request(first), request(first), request(second)] == [1, 1, 1]
    assert request(second, "age") == 2
    assert first.shared("means", "sex", lambda: "other") == "other"
    assert request(first.select([0], ["lyon", "oslo"]).begin(MeanSite)) == 3
    fewer = whole.begin(MeanSite)
    fewer.sites = ("lyon",)
    assert request(fewer) == 4
    assert request(first) == 1


def test_without_a_memory_and_with_a_plan_every_fit_requests_its_own():
    alone = Federation(NotingEngine()).begin(MeanSite)
    private = Federation(NotingEngine(), shared={}).begin(MeanSite, plan=Plan(()))
    for session in (alone, private):
        answers = iter((3, 4))
        assert [session.shared("levels", "sex", answers.__next__) for _ in range(2)] == [3, 4]


def test_a_request_that_failed_is_made_again():
    session = Federation(NotingEngine(), shared={}).begin(MeanSite)
    with pytest.raises(ZeroDivisionError):
        session.shared("levels", "sex", lambda: 1 / 0)
    assert session.shared("levels", "sex", lambda: 5) == 5


def test_the_answer_of_fewer_sites_is_not_that_of_all():
    """A site is lost during the request: the answer is stored for the sites that answered."""
    session = Federation(NotingEngine(), shared={}).begin(MeanSite)

    def lose():
        session.sites = ("lyon", "oslo")
        return "of two"

    assert session.shared("levels", "sex", lose) == "of two"
    assert session.shared("levels", "sex", lambda: "again") == "of two"
    session.sites = NAMES
    assert session.shared("levels", "sex", lambda: "of four") == "of four"


# Fits that need the same sites in all answers


def test_a_fit_of_the_same_sites_is_made_again_without_a_lost_one(tmp_path):
    engine = NotingEngine(lyon=gone("lyon"))
    terms = Terms(quorum=2)

    def fit(engine):
        tried = []
        for attempt in Federation(engine, terms=terms, store=Store(tmp_path)).attempts(MeanSite):
            with attempt as session:
                session.same_sites = True
                tried.append((session.sites, set(session.consortium.lost), session.left_out))
                answers = session.ask(MeanSite.size, ASK)
        return tried, list(answers)

    without = ("bern", "oslo", "roma")
    with pytest.warns(LeftOutWarning, match="without 1 of 4 sites, which no longer take part"):
        tried, answered = fit(engine)
    assert tried[0] == (NAMES, set(), {})
    assert tried[1][:2] == (without, {"lyon"})
    assert list(tried[1][2]) == ["lyon"]
    assert answered == list(without)
    with pytest.warns(LeftOutWarning, match="which no longer take part"):
        again, answered = fit(NotingEngine())  # a resumed run does not call the site again
    assert [one[:2] for one in again] == [(without, {"lyon"})]
    assert answered == list(without)


@pytest.mark.parametrize(
    ("least", "plan", "is_checked"),
    [(0, None, False), (5, None, True), (5, Plan((Planned(ClippedSite.clipped_sum, NOISE, 1),)), False)],
)
def test_totals_are_checked_where_a_policy_has_a_minimum_and_no_noise_replaces_it(least, plan, is_checked):
    session = Federation(NotingEngine(), least_in_total=least).begin(ClippedSite, plan=plan)
    assert session.checks_totals(ClippedSite.clipped_sum) is is_checked
    assert not session.checks_totals(PlanReview.review)  # it concerns no patients
