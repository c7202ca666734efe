"""A site runs a step on the right records, shows its guard every answer, and remembers no longer than asked."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from multicentre.core.calls import DIGEST_BYTES, Call, Mask, Place, Selection, StateCommand
from multicentre.core.differencing import EarlierAnswers
from multicentre.core.messages import Message, Nothing, array, number, text
from multicentre.core.noise_plan import PlanReview, PlanShown
from multicentre.core.site_runtime import SiteRuntime
from multicentre.core.steps import Acknowledgement, Common, Release, SitePart, step
from multicentre.core.storage import Store
from multicentre.errors import ConfigurationError, DataError, IntegrityError, RefusedByPolicy, SiteFailed

ROWS = np.arange(40.0)[:, None]
SECRET = "patient 4711"


@dataclass(frozen=True)
class Found(Release):
    """A number about patients."""

    total: float = number("total", bound=1e6)


@dataclass(frozen=True)
class Wish(Message):
    """How many records an alignment takes."""

    rows: np.ndarray = array("rows", ("n",), dtype="i8")


class Working(SitePart):
    """Notes what it was run with."""

    method = "toy-working"
    holds = np.ndarray
    remembers = Wish

    @step(releases=Found)
    def work(self, request: Wish) -> Found:
        """Add up the rows."""
        self.state = request
        SEEN.append(self)
        if len(request.rows) == 1:
            raise ValueError(SECRET)
        return Found(float(self.data.sum()), patients=len(self.data))


class Other(Working):
    """Another method over the same records."""

    method = "toy-other"
    remembers = Nothing


class Public(Working):
    """A part without patients."""

    method = "toy-public"
    holds_patients = False


class Dividing(SitePart):
    """Puts the wished rows into fold 0 and all others into fold 1."""

    method = "toy-dividing"
    holds = np.ndarray
    aligned = False
    sees_identifiers = True

    @property
    def folds(self):
        if self.state is None:
            return None
        folds = np.ones(len(self.data), dtype=np.int64)
        folds[self.state.rows] = 0
        return folds

    @property
    def division(self):
        return "hash"

    @property
    def alignment(self):
        if not self.aligned:
            return None
        return self.state.rows, Common(
            np.arange(len(self.state.rows)), len(self.state.rows), frozenset({"lyon", "oslo"})
        )

    @step(releases=Acknowledgement)
    def divide(self, request: Wish) -> Acknowledgement:
        """Divide the rows; nothing leaves."""
        self.state = request
        return Acknowledgement()


class Aligning(Dividing):
    """Brings the wished rows into their order."""

    method = "toy-aligning"
    aligned = True


class OpenGate:
    """Lets everything through and notes it."""

    least_behind = 5

    def __init__(self):
        self.rows, self.departures = [], []
        self.hiding = True

    def admit(self, call):
        pass

    def review(self, plan):
        pass

    def check_fit(self, call, n_parameters, rows):
        pass

    def least_in_answer(self, call, rows):
        return 5

    def fields_of(self, data):
        return len(data)

    def hides(self, call):
        return self.hiding

    def release(self, call, release, rows=None):
        self.rows.append(rows)
        return release

    def patients_among(self, rows):
        return len(rows)

    def persons(self, rows, *, all_named=True):
        return None

    def least_records(self, rows):
        return self.least_behind

    def note_failure(self, call, error):
        return error

    def note_departure(self, call, error):
        self.departures.append((call.sequence, error.what))


class Keys(SitePart):
    method = "toy-keys"
    holds_patients = False


class WordSeal:
    """Masks an answer with a word, so that a test sees which key was used."""

    keys = Keys

    def __init__(self):
        self.checked = []

    def new_keys(self, site, held):
        return Keys(site, None)

    def check(self, call, keys):
        self.checked.append((call, keys))

    def protect(self, call, release, keys):
        return Masked(f"{keys.site} {release.total}")


@dataclass(frozen=True)
class Masked(Message):
    """A masked answer."""

    word: str = text("word")


@pytest.fixture(autouse=True)
def seen():
    global SEEN
    SEEN = []
    return SEEN


def runtime(data=ROWS, **options):
    return SiteRuntime("lyon", data, OpenGate(), **options)


def wish(*rows):
    return Wish(np.array(rows, dtype=np.int64))


def call(offered=Working.work, request=None, *, session="0.1", peers=("lyon", "oslo"), mask=None, selection=None):
    return Call("study", session, 0, offered, request or wish(), peers, mask, None, selection)


def divided(site, rows, part=Dividing, session="0.1", selection=None):
    """Divide the rows and return the selection of those that were wished."""
    assert site.answer(call(part.divide, wish(*rows), session=session, selection=selection)) == Acknowledgement()
    return Selection(session, (0,), selection)


def error_of(outcome):
    return str(outcome.error)


def test_an_answer_leaves_without_its_number_of_patients():
    answer = runtime().answer(call())
    assert (answer.total, answer.patients) == (ROWS.sum(), {})


@pytest.mark.parametrize("hiding", [True, False])
@pytest.mark.parametrize("mask", [None, Mask("first", 1, 2)])
def test_a_part_knows_how_its_answer_leaves(seen, mask, hiding):
    site = runtime(seal=WordSeal())
    site._gate.hiding = hiding
    site.answer(call(mask=mask, peers=("lyon", "oslo", "lyon")))
    (part,) = seen
    assert (part.noised, part.masked) == (hiding, mask is not None)
    assert (part.least_behind, part.n_peers) == (5, 2)
    assert (part.within, part.common) == ("", None)


def test_a_masked_answer_is_checked_first_and_leaves_masked():
    seal = WordSeal()
    asked = call(mask=Mask("first", 1, 2))
    assert runtime(seal=seal).answer(asked) == Masked(f"lyon {ROWS.sum()}")
    ((checked, keys),) = seal.checked
    assert replace(checked, mark=asked.mark) == asked
    assert len(checked.mark.transcript) == 64
    assert isinstance(keys, Keys)


def test_a_refused_mask_is_entered_in_the_ledger_before_anything_is_computed(seen):
    seal, gate = WordSeal(), OpenGate()
    seal.check = lambda call, keys: raise_refusal()
    site = SiteRuntime("lyon", ROWS, gate, seal=seal)
    assert "the mask must be new" in error_of(site.answer(call(mask=Mask("first", 1, 2))))
    ((_, reason),) = gate.departures
    assert reason == "the mask must be new"
    assert gate.rows == seen == []


def raise_refusal():
    raise ConfigurationError("the mask must be new")


def test_a_site_without_masks_answers_no_masked_call(seen):
    assert "must have an identity" in error_of(runtime().answer(call(mask=Mask("first", 1, 2))))
    assert seen == []


def test_a_step_that_breaks_is_named_and_its_words_stay(caplog):
    outcome = runtime().answer(call(request=wish(1)))
    assert isinstance(outcome.error, SiteFailed)
    assert outcome.error.placed == "lyon: the step work of toy-working failed (ValueError)"
    assert SECRET not in error_of(outcome)
    (record,) = caplog.records
    assert record.getMessage() == "step work of toy-working failed"
    assert SECRET in record.exc_text


def test_records_are_divided_and_divided_again(seen):
    site = runtime()
    outer = divided(site, range(10, 30))
    inner = divided(site, range(8), session="0.2", selection=outer)
    for number_, (selection, rows) in enumerate(((outer, ROWS[10:30]), (inner, ROWS[10:18]))):
        assert site.answer(call(session=f"0.1.{number_}", selection=selection)).total == rows.sum()
    assert [part.within for part in seen] == ["toy-dividing/hash:0", "toy-dividing/hash:0/toy-dividing/hash:0"]
    assert [None if rows is None else rows.tolist() for rows in site._gate.rows] == [
        None,
        list(range(10, 30)),
        list(range(10, 30)),
        list(range(10, 18)),
    ]


def test_a_session_divides_by_its_own_part_only():
    site = runtime()
    divided(site, range(10), session="0.1")
    divided(site, range(20), session="0.2")
    assert site.answer(call(session="0.3", selection=Selection("0.2", (0,)))).total == ROWS[:20].sum()
    assert site.answer(call(session="0.4", selection=Selection("0.2", (1, 0)))).total == ROWS.sum()


def test_records_that_nothing_divided_are_refused():
    site = runtime()
    site.answer(call(session="0.9"))
    undivided, unknown = (
        site.answer(call(session="0.7", selection=Selection(plan, (0,)))).error for plan in ("0.9", "0.8")
    )
    assert isinstance(undivided, DataError)
    assert undivided.what == "the folds must hold at least one record of this site; they hold none"
    assert isinstance(unknown, ConfigurationError)
    assert unknown.what.startswith("selected records must come from a plan of folds in this run")


def test_aligned_records_come_in_their_order_with_their_places(seen):
    site = runtime()
    outer = divided(site, range(20, 40))
    order = [7, 3, 11, 5, 2, 9]
    aligned = divided(site, order, Aligning, "0.2", outer)
    assert site.answer(call(session="0.3", selection=aligned)).total == ROWS[20:40][order].sum()
    (part,) = seen
    assert part.data.tolist() == ROWS[20:40][order].tolist()
    assert part.common.sites == {"lyon", "oslo"}
    assert part.within == "toy-dividing/hash:0/toy-aligning/hash:0"
    assert site._gate.rows[-1].tolist() == [20 + place for place in order]
    plain = divided(site, order, Aligning, "0.4")
    assert site.answer(call(session="0.5", selection=plain)).total == ROWS[order].sum()
    assert seen[-1].within == "toy-aligning/hash:0"
    assert site.answer(call(session="0.5", selection=None)).error.what.startswith(
        "all calls of a session must be about one selection"
    )


def test_aligned_records_are_for_the_sites_that_sealed_their_order(seen):
    site = runtime()
    aligned = divided(site, range(20), Aligning)
    outcome = site.answer(call(session="0.2", selection=aligned, peers=("lyon", "oslo", "roma")))
    assert isinstance(outcome.error, RefusedByPolicy)
    assert "that sealed their order" in error_of(outcome)
    assert seen == []
    assert site.answer(call(session="0.2", selection=aligned, peers=("oslo",))).total == ROWS[:20].sum()


def test_no_plan_of_noise_is_about_aligned_records():
    site = runtime()
    aligned = divided(site, range(20), Aligning)
    empty = np.zeros(0, np.int64)
    review = call(PlanReview.review, PlanShown("x", (), (), empty, {}, {}), session="0.2", selection=aligned)
    assert "a plan of noise must be about patients who are at one site each" in error_of(site.answer(review))
    assert site.answer(call(review.step, review.request, session="0.3")) == Acknowledgement()


@pytest.mark.parametrize(
    ("before", "after", "fits"),
    [
        (range(20), range(25), True),  # five more: as many as the policy wants
        (range(20), range(24), False),
        (range(20), range(21), False),
        (range(20), range(1, 21), False),  # one left, another came
        (range(20), range(20), True),
        (range(35), None, True),
        (range(36), None, False),
        (range(39), None, False),
        (range(40), None, True),
        (None, range(35), True),
        (None, range(36), False),
        (None, range(40), True),
    ],
)
def test_no_two_answers_differ_by_fewer_patients_than_the_policy_wants(before, after, fits):
    shared = EarlierAnswers()
    outcomes = []
    for rows in (before, after):
        site = runtime(earlier_answers=shared)  # a run of its own over the same data
        selection = None if rows is None else divided(site, rows, Aligning)
        outcomes.append(site.answer(call(session="0.2", selection=selection)))
    assert isinstance(outcomes[0], Found)
    if fits:
        assert isinstance(outcomes[1], Found)
    else:
        assert "must equal those of earlier answers, or differ" in error_of(outcomes[1])


def test_only_what_works_on_patients_records_counts_as_work_on_them():
    shared = EarlierAnswers()
    site = runtime(earlier_answers=shared)
    site.answer(call(Public.work, session="0.1"))
    divided(site, range(20), session="0.2")
    part = divided(site, range(30), session="0.3")
    site.answer(call(session="0.4", selection=part))
    assert (shared.aligned, shared.includes_all) == ([], False)
    site.answer(call(session="0.5"))
    assert (shared.aligned, shared.includes_all) == ([], True)
    aligned = divided(site, range(20), Aligning, "0.6")
    for session in ("0.7", "0.8"):
        site.answer(call(session=session, selection=aligned))
    assert [rows.tolist() for rows in shared.aligned] == [list(range(20))]


def test_a_forgotten_session_begins_anew_and_others_go_on(seen):
    site = runtime()
    selection = divided(site, range(20), session="0.9")
    for session in ("0.1", "0.2"):
        site.answer(call(session=session))
        site.answer(call(Other.work, session=session))
    for session in ("0.1", "unheard of"):
        site.run_command(StateCommand("forget", session, Working))
    site.answer(call(session="0.2"))
    assert seen[-1] is seen[2]
    assert site.answer(call(session="0.1", selection=selection)).total == ROWS[:20].sum()
    assert "one selection" in error_of(site.answer(call(session="0.2", selection=selection)))


def run_command(site, action, number_, part=Working, session="0.1", selection=None):
    site.run_command(StateCommand(action, session, part, "rounds", number_, selection))


def test_a_state_is_kept_and_restored_in_the_same_part_or_a_new_one(seen, tmp_path):
    site = runtime(store=Store(tmp_path))
    run_command(site, "keep", 0)
    site.answer(call(request=wish(3, 4)))
    run_command(site, "keep", 1)
    site.answer(call(request=wish(5, 6)))
    run_command(site, "restore", 1)
    assert seen[0].state.rows.tolist() == [3, 4]
    run_command(site, "restore", 0)
    assert seen[0].state is None
    later = runtime(store=Store(tmp_path))
    run_command(later, "restore", 0)
    assert later.sessions.parts == {}
    run_command(later, "restore", 1)
    (part,) = later.sessions.parts.values()
    assert part.state.rows.tolist() == [3, 4]


def test_a_restored_state_is_taken_back_to_the_one_before_its_name(seen, tmp_path):
    site = runtime(store=Store(tmp_path))
    for place, name in enumerate("ab"):
        site.answer(call(request=wish(place, place + 1)))
        for number_ in (0, 1):
            site.run_command(StateCommand("keep", "0.1", Working, name, number_))
    later = runtime(store=Store(tmp_path))
    transcripts = []
    for action, name, number_ in (("restore", "a", 1), ("restore", "b", 1), ("restore", "b", 0), ("reset", "b", 0)):
        later.run_command(StateCommand(action, "0.1", Working, name, number_))
        transcripts.append(later.sessions.transcripts["0.1"].value)
    part = later.sessions.parts["0.1", Working]
    assert part.state.rows.tolist() == [0, 1]
    assert transcripts[3] == transcripts[0]
    assert len(set(transcripts)) == 3
    later.run_command(StateCommand("reset", "0.1", Working, "b"))
    assert part.state.rows.tolist() == [0, 1]
    later.answer(call(request=wish(7, 8)))
    later.run_command(StateCommand("reset", "0.1", Working, "a"))
    assert part.state.rows.tolist() == [7, 8]


def test_what_was_restored_is_not_taken_back_after_the_session_was_forgotten(seen, tmp_path):
    """The site would else hold the transcript of a state that it does not remember."""
    site = runtime(store=Store(tmp_path))
    site.answer(call(request=wish(3, 4)))
    for name in "ab":
        site.run_command(StateCommand("keep", "0.1", Working, name, 1))
    later, new = runtime(store=Store(tmp_path)), runtime(store=Store(tmp_path))
    for name in "ab":
        later.run_command(StateCommand("restore", "0.1", Working, name, 1))
    later.run_command(StateCommand("forget", "0.1", Working))
    later.run_command(StateCommand("reset", "0.1", Working, "b"))
    for one in (later, new):
        one.answer(call())
    assert later.sessions.transcripts["0.1"].value == new.sessions.transcripts["0.1"].value


def test_a_part_without_a_state_is_kept_as_such(tmp_path):
    site = runtime(store=Store(tmp_path))
    site.answer(call())
    site.sessions.parts[("0.1", Working)].state = None
    run_command(site, "keep", 1)
    assert len(Store(tmp_path).read("rounds", 1)) == DIGEST_BYTES


def test_nothing_is_kept_where_nothing_is_remembered(tmp_path):
    site = runtime(store=Store(tmp_path / "states"))
    site.answer(call(Other.work))
    run_command(site, "keep", 1, Other)
    assert not (tmp_path / "states").exists()
    bare = runtime()
    run_command(bare, "keep", 1)
    run_command(bare, "restore", 1)


def test_a_state_of_other_records_is_refused_in_words_that_say_nothing_of_them(tmp_path, caplog):
    site = runtime(store=Store(tmp_path))
    site.answer(call())
    run_command(site, "keep", 1)
    selection = divided(site, range(20), session="0.9")
    with pytest.raises(IntegrityError) as caught:
        run_command(site, "restore", 1, session="0.2", selection=selection)
    assert caught.value.placed.startswith("toy-working: the checkpoint must belong to the records of this run;")
    assert caught.value.__cause__ is None
    assert "other records" in caplog.text
    with pytest.raises(IntegrityError, match="belongs to a different set of records"):
        run_command(site, "restore", 1, session="0.3", selection=Selection("0.77", (0,)))


def test_a_session_has_one_selection_of_records():
    site = runtime()
    selection = divided(site, range(20), session="0.9")
    site.answer(call(selection=selection))
    outcome = site.answer(call())
    assert isinstance(outcome.error, ConfigurationError)
    assert outcome.error.where == "lyon, 0.1"


# The transcript after a refusal


class Steps(SitePart):
    """Offers a step of each kind."""

    method = "toy-steps"
    holds = np.ndarray

    def answer(self, request):
        return Found(1.0, patients=len(self.data))

    @step(releases=Found)
    def needed(self, request: Wish) -> Found:
        """Answer all sites alike."""
        return self.answer(request)

    @step(releases=Found, refusable=True)
    def optional(self, request: Wish) -> Found:
        """Answer, unless the site refuses."""
        return self.answer(request)

    @step(releases=Found, addressed="each")
    def single(self, request: Wish) -> Found:
        """Answer a message to this site."""
        return self.answer(request)


class Unentered(Steps):
    """Signs its terms."""

    method = "toy-unentered"
    in_transcript = False


def transcript_after(offered, *, refused):
    site = runtime()
    if refused:
        site._gate.admit = lambda call: raise_refusal()
    outcome = site.answer(call(offered))
    assert isinstance(outcome, Found) is not refused
    return site.sessions.transcripts["0.1"].value


@pytest.mark.parametrize(
    ("offered", "is_entered"),
    [(Steps.needed, True), (Steps.optional, False), (Steps.single, False), (Unentered.needed, False)],
    ids=lambda one: getattr(one, "name", None),
)
def test_a_refusal_is_entered_where_later_answers_may_depend_on_it(offered, is_entered):
    """Masks of a site that refused do not cancel with those of the others from then on."""
    differs = transcript_after(offered, refused=True) != transcript_after(offered, refused=False)
    assert differs is is_entered


def test_a_call_out_of_its_place_is_noted_with_its_call():
    site, noted = runtime(), []
    site._gate.note_departure = lambda call, error: noted.append((call, error.what))
    late = replace(call(), place=Place(3))
    error = site.answer(late).error
    assert error.what == "the site must receive all earlier calls of the fit; it missed some"
    ((refused, reason),) = noted
    assert reason == error.what
    assert (refused.sequence, refused.step) == (late.sequence, late.step)
    assert len(refused.mark.transcript) == 64


def test_the_hash_of_a_run_follows_from_the_numbers_of_all_sites():
    """It is the same in every release: sites sign it with their keys."""
    site = runtime()
    site.nonce, site.opening = "ab", "cd"
    with pytest.raises(IntegrityError, match="must have the random number that this site drew"):
        site.join({"oslo": "ef", "lyon": "00"})
    with pytest.raises(IntegrityError, match="must have the random number that this site drew"):
        site.join({"oslo": "ab"})
    runs = []
    for nonces in ({"oslo": "ef", "lyon": "ab"}, {"lyon": "ab", "oslo": "ef"}, {"lyon": "ab", "oslo": "00"}):
        site.join(nonces)
        runs.append(site.sessions.run)
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][:16] == "e9e5f02f38f9a3de"
    site.opening = "other"
    site.join({"oslo": "ef", "lyon": "ab"})
    assert site.sessions.run != runs[0]
