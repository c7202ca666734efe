"""Two answers about cohorts that differ by few patients are refused, whichever method or session asks for them."""

from dataclasses import dataclass

import numpy as np
import pytest

import multicentre as mc
from multicentre.assembly import new_guard
from multicentre.clustering.fuzzy import messages as fuzzy
from multicentre.clustering.fuzzy.site import MVFCMSite, MVFPCSite
from multicentre.federation.engine import Call, Refused
from multicentre.federation.errors import DisclosureRefused
from multicentre.federation.messages import Nothing, array, number
from multicentre.federation.runtime import SiteRuntime
from multicentre.federation.steps import Release, SitePart, step
from multicentre.multiview import agreement as views
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre.multiview.vae.site import LocalTraining
from multicentre.privacy.ledger import Ledger
from multicentre.survival.agreement.messages import About
from multicentre.survival.boost.classes.site import ClassSite
from multicentre.survival.boost.site import BoostSite
from multicentre.survival.cox.site import CoxSite
from multicentre.survival.rsf.site import ForestSite

N, LEAST = 60, 5
RANDOM = np.random.default_rng(20)
X = np.round(RANDOM.standard_normal((N, 2)), 3)
IDS = [f"p{number}" for number in range(N)]
SURVIVAL = mc.data.SurvivalData(X, RANDOM.exponential(1.0, N), np.ones(N, dtype=int), ids=IDS)
VIEWS = mc.data.MultiViewData({"blood": X}, ids=IDS)
NAMES, SIZES, ONES = ("blood",), {"blood": 2}, np.ones(2)
COLUMNS = {"blood": tuple(VIEWS.columns["blood"])}


class Site:
    """A site whose cohorts are remembered in a folder, whatever its present data are."""

    def __init__(self, folder, data, least=LEAST):
        policy = mc.Policy(min_difference=least, cohorts=str(folder / "cohorts"))
        self.runtime = SiteRuntime("lyon", data, new_guard("lyon", data, policy, Ledger()))

    def ask(self, asked, message, session="0"):
        answer = self.runtime.answer(Call("study", session, 0, asked, message, ("lyon", "oslo")))
        if isinstance(answer, Refused):
            raise answer.error
        return answer


SUMS = {
    "squares": (SURVIVAL, About(np.zeros(2)), [CoxSite.sum_squares, ForestSite.sum_squares, BoostSite.sum_squares]),
    "means": (
        VIEWS,
        views.Measured(NAMES, SIZES, ONES),
        [MvPPCASite.column_totals, LocalTraining.column_totals],
    ),
    "memberships": (
        VIEWS,
        fuzzy.Measured(NAMES, COLUMNS, ONES),
        [MVFCMSite.column_totals, MVFPCSite.column_totals],
    ),
}


@pytest.mark.parametrize("kind", SUMS)
def test_an_inherited_step_under_another_methods_name_does_not_answer_for_one_patient_less(kind, tmp_path):
    data, message, steps = SUMS[kind]
    Site(tmp_path, data).ask(steps[0], message)
    for other in steps:
        with pytest.raises(DisclosureRefused, match=f"differs from one already answered for by fewer than {LEAST}"):
            Site(tmp_path, data.take(np.arange(N - 1))).ask(other, message, session=f"another {other.method}")
        Site(tmp_path, data).ask(other, message)
        Site(tmp_path / other.method, data.take(np.arange(N - 1))).ask(other, message)
    Site(tmp_path, data.take(np.arange(N - LEAST))).ask(steps[-1], message)


def test_two_packages_that_sum_the_same_columns_share_the_memory(tmp_path):
    """Fed-mv-PPCA and fuzzy clusters declare their column sums alike; the code that adds them up is not the same."""
    Site(tmp_path, VIEWS).ask(MvPPCASite.column_totals, views.Measured(NAMES, SIZES, ONES))
    fewer = Site(tmp_path, VIEWS.take(np.arange(N - 1)))
    with pytest.raises(DisclosureRefused, match="differs from one already answered for"):
        fewer.ask(MVFCMSite.column_totals, fuzzy.Measured(NAMES, COLUMNS, ONES))


@dataclass(frozen=True)
class Renamed(Release):
    """The same array as of the survival methods, under names of its own."""

    n_here: float = number("how many", bound=1e6)
    squares_here: np.ndarray = array("sum of squared differences from the mean", ("d",), bound=1e9)


class Installed(SitePart):
    """A method of another package."""

    method = "another-package"

    @step(releases=Renamed, summed=True)
    def add_squares(self, ask: Nothing) -> Renamed:
        """Add squares."""
        return Renamed(float(len(self.data)), np.square(self.data.X).sum(axis=0), patients=len(self.data))


def test_an_array_declared_in_the_same_words_is_the_same_quantity(tmp_path):
    Site(tmp_path, SURVIVAL).ask(CoxSite.sum_squares, About(np.zeros(2)))
    with pytest.raises(DisclosureRefused, match="differs from one already answered for"):
        Site(tmp_path, SURVIVAL.take(np.arange(1, N))).ask(Installed.add_squares, Nothing())


def test_tables_of_classes_and_of_times_share_the_sums_of_their_columns():
    shared = {"sum of squared differences from the mean", "sum of the known values"}
    declared = [
        {found.what for name in ("sum_sizes", "sum_squares") for found in fields_of(part, name)}
        for part in (CoxSite, ClassSite)
    ]
    assert all(shared <= words for words in declared)


def fields_of(part, name):
    return part.steps()[name].releases.declarations().values()


def sites_of_three(n_incomplete):
    sites = {}
    for place, name in enumerate(("lyon", "oslo", "turin")):
        random = np.random.default_rng(place)
        values = np.round(random.standard_normal((120, 2)), 3)
        values[:n_incomplete, 0] = np.nan
        ids = [f"{name}{number}" for number in range(120)]
        data = mc.data.SurvivalData(values, random.exponential(1.0, 120), np.ones(120, dtype=int), ids=ids)
        sites[name] = data.with_identifier(ids)
    return sites


def federate(n_incomplete):
    policy = mc.Policy(min_difference=LEAST)
    return mc.Federation.in_process(sites_of_three(n_incomplete), secure_sum=True, policy=policy)


def test_honest_analyses_and_folds_of_one_cohort_go_through():
    with federate(0) as federation:
        mc.analytics.KaplanMeier().fit(federation)
        mc.survival.FedCox().fit(federation)
        mc.survival.FedHazardBoost(n_trees=2, missing="complete").fit(federation)
        plan = mc.validation.HashGroupKFold(3).plan(federation)
        for fold in range(3):
            mc.survival.FedCox().fit(plan.train(fold))


def test_incomplete_records_are_left_out_of_all_analyses_or_of_none():
    """A curve over all patients and a model without three of them would tell the three patients' column sums."""
    with federate(3) as federation:
        mc.survival.FedCox().fit(federation)
        mc.survival.FedHazardBoost(n_trees=2, missing="complete").fit(federation)
        with pytest.raises(DisclosureRefused, match=r'missing="mean" or "indicator" keeps those with a missing entry'):
            mc.analytics.KaplanMeier().fit(federation)
    with federate(3) as federation:
        mc.analytics.KaplanMeier().fit(federation)
        mc.survival.FedCox(missing="mean").fit(federation)
