"""Counts of few patients follow neither from a mean, nor from the other cells, nor from the words of a refusal."""

import ast
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.analytics.describe import messages
from multicentre.analytics.describe.site import DescribeSite
from multicentre.boosting.messages import InUnits
from multicentre.boosting.site import BoostingSite
from multicentre.core.calls import Call, Refused
from multicentre.core.messages import Message
from multicentre.errors import DataError, DisclosureRefused
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.curves.kaplan_meier.estimator import KaplanMeierSite

N, MINIMUM = 60, 10
SOURCES = Path(mc.__file__).parent
SESSIONS = count()


def draw(seed, n_septic):
    rng = np.random.default_rng(seed)
    septic = np.repeat([1.0, 0.0], [n_septic, N - n_septic])
    return np.column_stack([septic, rng.normal(60, 10, N), septic + 1.0]), rng


def table(seed, n_septic=2):
    X, rng = draw(seed, n_septic)
    return mc.data.TableData(X, rng.integers(0, 2, N), columns=["septic", "age", "ward"], classes=["no", "yes"])


def answer(make, step, request):
    """Return what the first of three sites answers unmasked in a session of its own."""
    sites = {name: make(seed) for seed, name in enumerate("abc")}
    with mc.Federation.in_process(sites, policy=mc.Policy(min_patients=MINIMUM), secure_sum=False) as federation:
        call = Call("study", f"attack.{next(SESSIONS)}", 0, step, request, tuple(sites))
        return federation.engine.exchange({"a": call}, None)["a"]


def is_refused(outcome):
    return isinstance(outcome, Refused) and isinstance(outcome.error, DisclosureRefused)


# Of 60 patients two are septic: as a number, the mean is their share; as a level, the other one is the rest.
ASKED = {"a mean": (("septic",), ()), "the other level": ((), ("septic=0",)), "the level": ((), ("septic=1",))}


@pytest.mark.parametrize(("numbers", "levels"), ASKED.values(), ids=ASKED)
def test_a_description_tells_of_no_few_patients(numbers, levels):
    groups = messages.Groups("", (), numbers, levels)
    units = messages.Units("", (), numbers, levels, exponent=np.zeros(len(numbers), dtype=np.int64))
    for step, request in ((DescribeSite.describe_site, groups), (DescribeSite.count_groups, units)):
        assert is_refused(answer(table, step, request))
        assert not isinstance(answer(lambda seed: table(seed, 20), step, request), Refused)


def test_nor_does_a_group_of_a_description():
    """Ten patients or more are of either class, and the two septic ones are among those of one class."""
    units = messages.Units("outcome", ("no", "yes"), ("septic",), (), exponent=np.zeros(1, dtype=np.int64))
    assert is_refused(answer(table, DescribeSite.count_groups, units))


def test_a_check_of_quality_leaves_out_a_mean_that_is_a_small_count():
    request = messages.Groups("", (), ("septic", "age"), ())
    few, many = (answer(lambda seed, n=n: table(seed, n), DescribeSite.check_quality, request) for n in (2, 20))
    assert np.isnan(few.moments[0]).all()
    assert not np.isnan(few.moments[1]).any()
    assert not np.isnan(many.moments).any()


@pytest.mark.parametrize("largest", [4e6, 9.0])
def test_an_outcome_of_which_one_patient_makes_most_is_not_summed(largest):
    def numbers(seed):
        X, rng = draw(seed, 20)
        y = rng.uniform(1.0, 9.0, N).round()
        y[0] = largest
        return mc.data.TableData(X, y, columns=["septic", "age", "ward"], outcome="number")

    outcome = answer(numbers, BoostingSite.sum_outcomes, InUnits(exponent=-10))
    assert is_refused(outcome) if largest > 9.0 else isinstance(outcome, Message)


def followed(seed):
    X, rng = draw(seed, 20)
    return mc.data.SurvivalData(X, np.arange(N) + rng.random(N), np.arange(N) % 2)


@pytest.mark.parametrize(("n_before", "refused"), [(1, True), (9, True), (30, False)])
def test_a_chosen_end_of_follow_up_has_no_few_patients_before_it(n_before, refused):
    """Those after it leave as counts, and the number of all patients does."""
    data = followed(0)
    ends = float(np.sort(data.time)[n_before - 1 : n_before + 1].mean())
    none, d = np.zeros(0), len(data.columns)
    request = Prepared(
        data.columns, data.unit, 1, 3.0 * N, 1.5 * N, np.array([5.0, 20.0]), np.zeros(d), np.ones(d), none,
        np.zeros(d + 1, dtype=np.int64), ends=ends,
    )  # fmt: skip
    assert is_refused(answer(followed, KaplanMeierSite.agree, request)) == refused


def counted_words(tree):
    """Return the expressions in the errors of a module that count records: sums of flags."""
    return [
        ast.unparse(value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and node.exc is not None
        for value in ast.walk(node.exc)
        if isinstance(value, ast.FormattedValue) and ".sum(" in ast.unparse(value)
    ]


# A model's own check of the table that an analyst predicts for; nothing of it leaves a site.
LOCAL = {"data/missing/values.py": 1}


def test_no_error_of_a_site_part_counts_records():
    """Errors leave under masks too, and the coordinator chooses the column or the family that they are about."""
    numbers = {}
    for path in SOURCES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "(SitePart)" in text or "Part)" in text or "Site)" in text:
            numbers[path.relative_to(SOURCES).as_posix()] = len(counted_words(ast.parse(text)))
    assert {path: number for path, number in numbers.items() if number} == LOCAL
    assert counted_words(ast.parse("raise DataError(f'{int(wrong.sum())} of {len(wrong)} are not')"))


def test_a_column_of_another_kind_is_named_without_a_count():
    outcome = answer(table, DescribeSite.describe_site, messages.Groups("", (), (), ("ward=1",)))
    assert isinstance(outcome.error, DataError)
    assert not any(letter.isdigit() for letter in outcome.error.what.replace("0 and 1", ""))
