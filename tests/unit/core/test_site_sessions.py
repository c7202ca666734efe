"""Site parts receive the data, the key and the persons that they declare, and transcripts begin with the study."""

from types import SimpleNamespace

import numpy as np
import pytest

from multicentre.core.differencing import EarlierAnswers
from multicentre.core.noise_plan import PlanReview
from multicentre.core.site_sessions import PartFactory, SiteSessions
from multicentre.core.steps import SitePart
from multicentre.errors import ConfigurationError

ROWS = np.arange(12.0)
SOME = np.array([3, 1, 4])


class Plain(SitePart):
    """Sees no identifiers."""

    method = "plain"
    holds = np.ndarray


class Seeing(Plain):
    """Sees identifiers."""

    method = "seeing"
    sees_identifiers = True


class Clipping(Plain):
    """Bounds the records of a person."""

    method = "clipping"
    clips_persons = True


class Counting(Plain):
    """Compares patients."""

    method = "counting"
    counts_persons = True


class Mixed:
    """Data of several types, with and without identifiers."""

    def __init__(self, with_identifiers=True):
        self.with_identifiers = with_identifiers

    def without_identifier(self):
        return Mixed(False)

    def of_type(self, kind):
        assert kind is np.ndarray
        return ROWS if self.with_identifiers else -ROWS


GATE = SimpleNamespace(
    least_behind=5,
    review="review",
    patients_among=len,
    fields_of=lambda data: data,
    persons=lambda rows, all_named: (rows if rows is None else rows.tolist(), all_named),
)
SEAL = SimpleNamespace(keys=type("Keys", (SitePart,), {}), new_keys=lambda site, held: (site, held.tolist()))


def factory(data=ROWS, **options):
    return PartFactory("lyon", data, GATE, **options)


def test_a_part_holds_the_records_of_its_session():
    assert factory().create(Plain, None).data is ROWS
    part = factory(key="key").create(Plain, SOME)
    assert (part.site, part.data.tolist(), part.key, part.persons) == ("lyon", [3.0, 1.0, 4.0], None, None)


def test_only_parts_that_see_identifiers_receive_them_and_the_key():
    seeing = factory(Mixed(), key="key").create(Seeing, SOME)
    plain = factory(Mixed(), key="key").create(Plain, SOME)
    assert (seeing.data.tolist(), seeing.key) == ([3.0, 1.0, 4.0], "key")
    assert (plain.data.tolist(), plain.key) == ([-3.0, -1.0, -4.0], None)


@pytest.mark.parametrize(("kind", "all_named"), [(Clipping, True), (Counting, False)])
def test_parts_that_bound_or_count_persons_receive_their_numbers(kind, all_named):
    """A part that bounds persons needs the name of every record."""
    assert factory().create(kind, SOME).persons == ([3, 1, 4], all_named)
    assert factory().create(kind, None).persons == (None, all_named)


def test_plans_of_noise_and_keys_of_masks_have_parts_of_their_own():
    assert factory(seal=SEAL).create(SEAL.keys, SOME) == ("lyon", [3.0, 1.0, 4.0])
    review = factory().create(PlanReview, SOME)
    assert (review.site, review._review) == ("lyon", "review")
    assert factory().create(SEAL.keys, SOME).data.tolist() == [3.0, 1.0, 4.0]  # without masks, a part like any other


def sessions(terms="terms", run=""):
    made = SiteSessions(factory(), EarlierAnswers(), terms)
    made.run = run
    return made


def start_of(session="0.1", **options):
    return sessions(**options).begin(session, None).value


def test_a_transcript_begins_with_the_session_the_terms_and_the_run():
    assert start_of() == start_of()
    starts = {start_of(), start_of("0.2"), start_of(terms="other"), start_of(run="other")}
    assert len(starts) == 4


def test_a_session_has_one_part_of_each_class_and_one_selection():
    made = sessions(run="ab")
    part = made.part("0.1", Plain, None)
    assert made.part("0.1", Plain, None) is part
    assert made.part("0.1", Counting, None) is not part
    assert made.part("0.2", Plain, None) is not part
    assert (part.run, part.within, part.common) == ("ab", "", None)
    assert part.earlier_predictions is made._earlier_answers.predictions
    with pytest.raises(ConfigurationError, match="all calls of a session must be about one selection"):
        made.begin("0.1", SimpleNamespace(plan="0.3"))


@pytest.mark.parametrize(
    ("rows", "used", "of_all", "behind"),
    [
        (None, None, False, None),
        (SOME, None, False, [3, 1, 4]),
        (None, np.array([2, 0]), False, [2, 0]),
        (SOME, np.array([2, 0]), False, [4, 3]),
        (SOME, np.array([2, 0]), True, [3, 1, 4]),
        (None, np.array([2, 0]), True, None),
    ],
)
def test_an_answer_is_about_the_records_that_its_part_uses(rows, used, of_all, behind):
    """The rows of a part count within those of its session."""
    made = sessions()
    made.part("0.1", Plain, None).used = used
    made._records["0.1"] = SimpleNamespace(rows=rows)
    releases = SimpleNamespace(of_all_records=of_all)
    call = SimpleNamespace(session="0.1", step=SimpleNamespace(part=Plain, releases=releases))
    result = made.rows_behind(call)
    assert (None if result is None else result.tolist()) == behind
    assert made.rows_of(call) is rows


def test_a_forgotten_session_leaves_no_part_behind():
    made = sessions()
    kept = made.part("0.2", Plain, None)
    made.part("0.1", Plain, None)
    counting = made.part("0.1", Counting, None)
    made.forget("0.1", lambda kind: kind is Plain)
    assert made.parts == {("0.2", Plain): kept, ("0.1", Counting): counting}
    with pytest.raises(KeyError):
        made.transcripts["0.1"]
    made.forget("0.1", lambda kind: True)
    assert list(made.parts) == [("0.2", Plain)]
