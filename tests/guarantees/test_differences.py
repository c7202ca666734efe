"""Two answers about cohorts that differ by few patients are refused, whatever the quantity, method or session."""

import contextlib
import importlib
import pkgutil
from dataclasses import dataclass

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.calls import Call, Refused
from multicentre.core.messages import Nothing, array, count
from multicentre.core.site_runtime import SiteRuntime
from multicentre.core.steps import Release, SitePart, step
from multicentre.data.flow import FlowCounts
from multicentre.data.missing.values import Gaps, Handling
from multicentre.errors import DisclosureRefused, MissingExtra
from multicentre.federation import new_guard
from multicentre.linkage.alignment import align
from multicentre.linkage.alignment import messages as alignment
from multicentre.multiview import agreement as views
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.policy import NEW_SITE, simulated_policy
from multicentre.survival.agreement.messages import About
from multicentre.survival.cox.site import CoxSite
from multicentre.survival.rsf.site import ForestSite
from multicentre.survival.surv_boost.site import BoostSite
from multicentre_papers.baselines.fuzzy import messages as fuzzy
from multicentre_papers.baselines.fuzzy.site import MVFCMSite, MVFPCSite
from multicentre_papers.baselines.vae.site import LocalTraining

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
        with pytest.raises(DisclosureRefused, match=f"must differ from that of an earlier answer by at least {LEAST}"):
            Site(tmp_path, data.take(np.arange(N - 1))).ask(other, message, session=f"another {other.method}")
        Site(tmp_path, data).ask(other, message)
        Site(tmp_path / other.method, data.take(np.arange(N - 1))).ask(other, message)
    Site(tmp_path, data.take(np.arange(N - LEAST))).ask(steps[-1], message)


def test_two_packages_that_sum_the_same_columns_share_the_memory(tmp_path):
    """Fed-mv-PPCA and fuzzy clusters declare their column sums alike; the code that adds them up is not the same."""
    Site(tmp_path, VIEWS).ask(MvPPCASite.column_totals, views.Measured(NAMES, SIZES, ONES))
    fewer = Site(tmp_path, VIEWS.take(np.arange(N - 1)))
    with pytest.raises(DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"):
        fewer.ask(MVFCMSite.column_totals, fuzzy.Measured(NAMES, COLUMNS, ONES))


def test_column_sums_do_not_follow_from_squares_about_two_centres(tmp_path):
    """The squares about 0 less those about 1 are twice the column sums less the number of patients."""
    Site(tmp_path, VIEWS).ask(MvPPCASite.column_totals, views.Measured(NAMES, SIZES, ONES))
    fewer = Site(tmp_path, VIEWS.take(np.arange(N - 1)))
    for centre in (0.0, 1.0):
        squares = views.CentredMeasured(NAMES, SIZES, np.full(2, centre), ONES)
        with pytest.raises(
            DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"
        ):
            fewer.ask(MvPPCASite.column_squares, squares, session=f"centre {centre}")
    enough = Site(tmp_path, VIEWS.take(np.arange(N - LEAST)))
    enough.ask(MvPPCASite.column_squares, views.CentredMeasured(NAMES, SIZES, np.zeros(2), ONES))


@dataclass(frozen=True)
class FixedPoint(Release):
    """A sum of values under the name and the kind of a count."""

    total: int = count("patients", signed=True)


@dataclass(frozen=True)
class Table(Release):
    """Patients by the sign of the first column."""

    patients_by_sign: np.ndarray = array("patients", ("d",), dtype="i8", bound=1e6, counts=True)


class Installed(SitePart):
    """A method of another package, whose releases look like counts."""

    method = "another-package"

    @step(releases=FixedPoint, summed=True)
    def count_patients(self, request: Nothing) -> FixedPoint:
        """Add up a column."""
        return FixedPoint(round(float(self.data.X[:, 0].sum()) * 2**24), patients=len(self.data))

    @step(releases=Table, summed=True)
    def count_signs(self, request: Nothing) -> Table:
        """Count the signs of a column."""
        positive = int((self.data.X[:, 0] > 0).sum())
        return Table(np.array([positive, len(self.data) - positive]), patients=len(self.data))

    @step(releases=FixedPoint)
    def add_rows(self, request: Nothing) -> FixedPoint:
        """Add up all views."""
        total = sum(self.data.array(view).sum() for view in self.data.views)
        return FixedPoint(round(float(total) * 2**24), patients=len(self.data))


@pytest.mark.parametrize("asked", [Installed.count_patients, Installed.count_signs], ids=["fixed point", "table"])
def test_answers_that_look_like_counts_are_held_against_all_others(asked, tmp_path):
    Site(tmp_path, SURVIVAL).ask(CoxSite.sum_squares, About(np.zeros(2)))
    fewer = SURVIVAL.take(np.arange(1, N))
    with pytest.raises(DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"):
        Site(tmp_path, fewer).ask(asked, Nothing())
    Site(tmp_path / "reversed", fewer).ask(asked, Nothing())
    with pytest.raises(DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"):
        Site(tmp_path / "reversed", SURVIVAL).ask(CoxSite.sum_squares, About(np.zeros(2)))


def kinds_of(base):
    for kind in base.__subclasses__():
        yield kind
        yield from kinds_of(kind)


def test_only_counts_of_missing_entries_and_keyed_hashes_are_exempt():
    """A release joins this list only if its difference from any other answer tells no value of a patient."""
    for module in pkgutil.walk_packages(mc.__path__, "multicentre."):
        with contextlib.suppress(ImportError, MissingExtra):
            importlib.import_module(module.name)
    shipped = {kind for kind in kinds_of(Release) if kind.__module__.startswith("multicentre.")}
    hashes = {alignment.Pseudonyms, alignment.Sealed, alignment.SealedIncomplete}
    assert {kind for kind in shipped if kind.without_values} == {Gaps, FlowCounts, alignment.Counted, *hashes}


def test_counts_of_missing_entries_are_held_against_each_other_and_not_against_sums(tmp_path):
    """Their difference tells which entries a patient lacks; that with a sum of the complete records tells no value."""
    n_incomplete = 20
    with_gaps = np.array(X)
    with_gaps[:n_incomplete, 0] = np.nan
    data = mc.data.SurvivalData(with_gaps, np.arange(1.0, N + 1), np.ones(N, dtype=int), ids=IDS)
    handling = Handling("mean", tuple(data.columns))
    Site(tmp_path, data).ask(CoxSite.sum_squares, About(np.zeros(2)))
    fewer = data.take(np.arange(N - 1))
    Site(tmp_path, fewer).ask(ForestSite.count_gaps, handling)
    with pytest.raises(DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"):
        Site(tmp_path, data).ask(CoxSite.count_gaps, handling)
    with pytest.raises(DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"):
        Site(tmp_path, fewer).ask(ForestSite.sum_squares, About(np.zeros(2)))


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
        mc.survival.KaplanMeier().fit(federation)
        mc.survival.FedCox().fit(federation)
        mc.survival.FedHazardBoost(n_estimators=2, missing="complete").fit(federation)
        plan = mc.validation.HashGroupKFold(3).plan(federation)
        for fold in range(3):
            mc.survival.FedCox().fit(plan.train(fold))


def test_incomplete_records_are_left_out_of_all_analyses_or_of_none():
    """A curve over all patients and a model without three of them would tell the three patients' column sums."""
    with federate(3) as federation:
        mc.survival.FedCox().fit(federation)
        mc.survival.FedHazardBoost(n_estimators=2, missing="complete").fit(federation)
        with pytest.raises(DisclosureRefused, match=r'missing="mean" or "indicator" keeps those with a missing entry'):
            mc.survival.KaplanMeier().fit(federation)
    with federate(3) as federation:
        mc.survival.KaplanMeier().fit(federation)
        mc.survival.FedCox(missing="mean").fit(federation)


def test_an_alignment_that_leaves_few_patients_out_goes_through():
    """Pseudonyms of all records tell no values, and so nothing together with sums over the common patients."""
    people = [f"p{number}" for number in range(N)]
    sites = {
        "lyon": mc.data.MultiViewData({"blood": X}, ids=people),
        "oslo": mc.data.MultiViewData({"scan": X[3:]}, ids=people[3:]),
    }
    policy = mc.Policy(min_difference=LEAST)
    with mc.Federation.in_process(sites, policy=policy) as federation:
        opened = align(federation).federation.begin(Installed)
        opened.ask(Installed.add_rows, Nothing())


# --- the default ------------------------------------------------------------------------------------------------------


def table_one(federation):
    return mc.analytics.Describe(quartiles=False).fit(federation).numbers()


def two_days(policy, *, ids=True):
    """Fit the same table before and after the admission of one patient, at sites that remember their answers."""
    for admitted in (0, 1):
        sites = {}
        for site in "abc":
            n = N + admitted * (site == "b")
            rows = np.random.default_rng(ord(site)).normal(size=(N + 1, 2))[:n]
            names = [f"{site}{number}" for number in range(n)] if ids else None
            sites[site] = mc.data.TableData(rows, np.arange(n) % 2, ids=names)
        table_one(mc.Federation.in_process(sites, study="t1", policy=policy))


def test_by_default_the_same_table_on_two_days_does_not_give_the_new_patient(tmp_path):
    with pytest.raises(DisclosureRefused, match="b, describe, min_difference: the cohort must differ"):
        two_days(mc.Policy(cohorts=str(tmp_path / "cohorts")))
    two_days(mc.Policy(min_difference=0, cohorts=str(tmp_path / "off")))


def test_a_number_refuses_records_without_ids_and_the_default_does_not_compare_them(tmp_path):
    two_days(mc.Policy(cohorts=str(tmp_path / "cohorts")), ids=False)
    assert not (tmp_path / "cohorts.b").exists()
    with pytest.raises(DisclosureRefused, match="records must have patient ids to compare cohorts"):
        two_days(mc.Policy(min_difference=LEAST), ids=False)


def test_every_policy_has_the_same_default():
    assert {each.difference_of(have_ids=True) for each in (mc.Policy(), NEW_SITE, simulated_policy(3))} == {LEAST}
