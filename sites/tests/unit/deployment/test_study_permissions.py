"""What a steward approved is what is answered: steps, masks, quorum, noise. Every method asks what its card names."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.calls import Call, Mask, Selection
from multicentre.core.messages import Nothing
from multicentre.core.noise_plan import Noise, PlanReview, PlanShown
from multicentre.errors import ConfigurationError, ProtocolRefused, RefusedByPolicy
from multicentre.estimator.base import find_estimator
from multicentre.estimator.registry import METHODS, Registered
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.policy import Policy
from multicentre.privacy.secure_sum.site import MaskingKeys
from multicentre.studies.policy_conflicts import aligning_steps, fitting_steps
from multicentre.studies.study import make_estimator
from multicentre.studies.study_file import study_from_mapping
from multicentre_sites.deployment.study_permissions import StudyGuard, StudyPermissions, permissions_of
from support.method_cases import CASES
from support.survival_toy import FedPrivateMean, PrivateSite

UNMASKED = {"secure_sum": False}
PRIVATE = Registered("support.survival_toy:FedPrivateMean")


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy-private", PRIVATE)


def study_of(method="toy-private", **tables):
    sites = {name: {} for name in ("lyon", "oslo", "porto")}
    content = {"study": {"name": "x", "method": method}, "sites": sites, "data": {"survival": {}}}
    return study_from_mapping({**content, **tables})


def call_of(step, request=None, *, threshold=3, **more):
    mask = Mask("a", 0, threshold) if more.pop("masked", False) else None
    return Call("x", "0.1", 0, step, request or Nothing(), ("lyon", "oslo", "porto"), mask, **more)


@pytest.fixture
def agreed():
    return permissions_of(study_of())


def planned():
    return FedPrivateMean().privacy_plan().releases[0].noise


def test_the_call_that_was_approved_is_not_objected_to(agreed):
    assert agreed.objection(call_of(PrivateSite.sum_columns, masked=True, noise=planned())) == ("", "")
    assert agreed.objection(call_of(MaskingKeys.advertise)) == ("", "")
    assert agreed.objection(call_of(PlanReview.review)) == ("", "")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_less_noise_than_was_planned_is_refused(agreed, share):
    noise = None
    if share:
        noise = dataclasses.replace(
            planned(), multipliers={name: share * scale for name, scale in planned().multipliers.items()}
        )
    call = call_of(PrivateSite.sum_columns, masked=True, noise=noise)
    assert agreed.objection(call) == (
        "study, plan of noise",
        "the answer must have the noise that the study plans; got less",
    )


def test_noise_of_another_law_or_of_fewer_fields_is_refused(agreed):
    scales = dict(planned().multipliers)
    for noise in (Noise("laplace", scales), Noise("gaussian", {"total": scales["total"]})):
        assert agreed.objection(call_of(PrivateSite.sum_columns, masked=True, noise=noise))[0] == "study, plan of noise"


def test_more_noise_is_welcome(agreed):
    noise = Noise("gaussian", {name: 2 * scale for name, scale in planned().multipliers.items()})
    assert agreed.objection(call_of(PrivateSite.sum_columns, masked=True, noise=noise)) == ("", "")


def test_an_unmasked_sum_is_refused_where_sums_are_masked(agreed):
    found = agreed.objection(call_of(PrivateSite.sum_columns, noise=planned()))
    assert found[0] == "study, secure_sum"
    unmasked = permissions_of(study_of(privacy=UNMASKED))
    assert unmasked.objection(call_of(PrivateSite.sum_columns, noise=planned())) == ("", "")


def test_a_sum_that_fewer_sites_suffice_for_is_refused_over_some_records_too(agreed):
    few = call_of(PrivateSite.sum_columns, masked=True, threshold=2, noise=planned())
    assert agreed.objection(few)[0] == "study, quorum"
    some = dataclasses.replace(few, selection=Selection("0.2", (1,)))
    assert agreed.objection(some)[0] == "study, quorum"
    lenient = permissions_of(study_of(run={"quorum": 2}))
    assert lenient.objection(few) == ("", "")


def test_sums_without_refusing_sites_are_approved_with_the_study_down_to_its_quorum():
    def objection(threshold, **run):
        call = call_of(PrivateSite.sum_columns, masked=True, threshold=threshold, noise=planned())
        return permissions_of(study_of(run={"refusing_sites": "leave_out", **run})).objection(call)[0]

    assert objection(2) == ""
    assert objection(2, quorum=3) == "study, quorum"
    assert objection(3, quorum=3) == ""


def test_a_plan_with_less_noise_or_more_calls_is_not_the_studys(agreed):
    own = PlanShown.of(agreed.fits[0].plan, agreed.fits[0].part)
    assert agreed.covers(own)
    assert agreed.covers(dataclasses.replace(own, times=np.maximum(own.times - 1, 1)))
    more = {name: values * 1.5 for name, values in own.multipliers.items()}
    assert agreed.covers(dataclasses.replace(own, multipliers=more))
    less = {name: values / 1.001 for name, values in own.multipliers.items()}
    assert not agreed.covers(dataclasses.replace(own, multipliers=less))
    assert not agreed.covers(dataclasses.replace(own, times=own.times + 10**6))
    assert not agreed.covers(dataclasses.replace(own, method="another"))
    assert not permissions_of(study_of("kaplan-meier")).covers(own)


def test_a_plan_that_is_not_the_studys_is_refused_and_written_down(agreed):
    ledger = Ledger()
    guard = StudyGuard(agreed, Policy(), ledger)
    own = PlanShown.of(agreed.fits[0].plan, agreed.fits[0].part)
    guard.review(own)
    with pytest.raises(RefusedByPolicy, match="must have the noise and calls"):
        guard.review(dataclasses.replace(own, times=own.times + 10**6))
    assert [entry["event"] for entry in ledger.entries] == ["refusal"]


def test_steps_that_no_card_names_are_refused(agreed):
    other = permissions_of(study_of("kaplan-meier", privacy=UNMASKED))
    assert other.objection(call_of(PrivateSite.sum_columns))[0] == "study"
    with pytest.raises(ConfigurationError, match="got 'secure-sum'"):
        other.part("secure-sum")
    assert agreed.part("secure-sum") is MaskingKeys


def test_the_guard_refuses_and_writes_it_down():
    ledger = Ledger()
    guard = StudyGuard(permissions_of(study_of(privacy=UNMASKED)), Policy(), ledger, site="lyon")
    with pytest.raises(ProtocolRefused, match="must have the noise that the study plans"):
        guard.admit(call_of(PrivateSite.sum_columns))
    (entry,) = ledger.entries
    assert (entry["event"], entry["step"]) == ("refusal", "sum_columns")
    guard.admit(call_of(PrivateSite.sum_columns, noise=planned()))
    assert len(ledger.entries) == 1


def studied_cases():
    kinds = {find_estimator(name) for name in METHODS if name not in ("fed-vae", "fed-mcvae", "fed-deep-surv")}
    return [name for name, case in CASES.items() if type(case.make()) in kinds]


@pytest.mark.filterwarnings("ignore::multicentre_papers.entry_descent.MaskedLossWarning")
@pytest.mark.parametrize("name", studied_cases())
def test_a_fit_asks_no_step_that_its_card_does_not_name(name):
    """Such a step would be refused at every hospital, and would pass in a simulation."""
    case = CASES[name]
    estimator = case.make()
    with mc.Federation.in_process(case.sites(), secure_sum=True, policy=case.policy) as federation:
        estimator.fit(federation)
    steps = {estimator.site_part: fitting_steps(estimator, "masked")}
    if estimator.aligned_by is not None:
        steps[estimator.aligned_by] = aligning_steps(estimator) | {"draw_nonce"}
    agreed = StudyPermissions(steps, (), masked=True, quorum=1)
    parts = {part.method: part for part in steps}
    entries = [entry for ledger in federation.ledgers.values() for entry in ledger.entries]
    asked = {(one["method"], one["step"], one["protection"]) for one in entries if one["method"] in parts}
    assert asked
    for method, step, protection in asked:
        call = call_of(parts[method].steps()[step], masked=protection == "masked")
        assert agreed.objection(call) == ("", ""), (method, step, protection)


def test_an_unknown_parameter_is_refused():
    with pytest.raises(ConfigurationError, match="epsilonn"):
        make_estimator(study_of(parameters={"epsilonn": 1.0}))
