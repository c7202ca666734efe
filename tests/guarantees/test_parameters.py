"""A regression with many coefficients for its patients is refused at the site, whatever the coordinator asks."""

import re

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import RefusedByPolicy
from multicentre.survival.cox import messages
from multicentre.survival.cox.site import CoxSite
from multicentre.survival.surv_boost import messages as boosting
from multicentre.survival.surv_boost.site import BoostSite

N, D = 60, 21
SMALL = mc.Policy(min_patients=1)  # cells of a few patients leave unmasked, so that this limit is what refuses
LOOSE = mc.Policy(max_parameters_per_patient=0)
REASON = r"at least 3 patients of (this site|all sites) per coefficient; got 21"


def data_of(n=N, d=D, seed=0, owners=None):
    random = np.random.default_rng(seed)
    data = mc.data.SurvivalData(
        random.standard_normal((n, d)), random.exponential(1.0, n), (random.random(n) < 0.8).astype(int)
    )
    return data if owners is None else data.with_identifier(owners)


def federate(n_sites=3, d=D, *, n=N, secure=True, owners=None, **options):
    sites = {f"s{place}": data_of(n, d, place, owners) for place in range(n_sites)}
    options.setdefault("one_row_per_patient", owners is None)
    return mc.Federation.in_process(sites, secure_sum=secure, **options)


def test_masked_sums_count_the_patients_of_all_sites_and_unmasked_ones_those_of_each():
    mc.survival.FedCox(alpha=1.0).fit(federate())
    with pytest.raises(RefusedByPolicy, match=REASON):
        mc.survival.FedCox(alpha=1.0).fit(federate(secure=False, policy=SMALL))
    mc.survival.FedCox(alpha=1.0).fit(federate(d=20, secure=False, policy=SMALL))


def test_too_many_coefficients_for_all_sites_are_refused_under_masks():
    with pytest.raises(RefusedByPolicy, match=r"at least 3 patients of all sites per coefficient; got 61"):
        mc.survival.FedCox(alpha=1.0).fit(federate(d=61))
    mc.survival.FedCox(alpha=1.0).fit(federate(d=60, policy=mc.Policy()))
    mc.survival.FedCox(alpha=1.0).fit(federate(d=61, policy=LOOSE))


def test_sites_that_may_be_lost_do_not_count():
    """With a quorum of two of three the sum may be over two sites, and 40 coefficients are the most."""
    with pytest.raises(RefusedByPolicy, match="patients of all sites per coefficient; got 41"):
        mc.survival.FedCox(alpha=1.0).fit(federate(d=41, quorum=2))
    mc.survival.FedCox(alpha=1.0).fit(federate(d=40, quorum=2))


def test_patients_are_persons():
    """Of 60 records of 30 patients a site lets 10 coefficients be fitted by itself."""
    owners = [f"p{record // 2}" for record in range(N)]
    with pytest.raises(RefusedByPolicy, match="patients of this site per coefficient; got 11"):
        mc.survival.FedCox(alpha=1.0).fit(federate(1, 11, secure=False, owners=owners, policy=SMALL))
    mc.survival.FedCox(alpha=1.0).fit(federate(1, 10, secure=False, owners=owners, policy=SMALL))


def test_a_model_of_one_site_alone_counts_that_sites_patients_also_where_sums_are_masked():
    federation = federate(policy=SMALL)
    model = mc.survival.FedCox(alpha=1.0).fit(federation)
    found = model.by_site()
    assert set(found.refused) == set(federation.sites)
    assert all(re.search(REASON, reason) for reason in found.refused.values())


ASKS = {
    "sum_derivatives": messages.At(np.zeros(D), efron=False),
    "sum_risk": messages.AtShared(np.zeros(D), efron=False, shift=0.0),
    "sum_own_scores": messages.At(np.zeros(D), efron=False),
    "sum_estimates": messages.Penalty(1.0, efron=False),
}


@pytest.mark.parametrize("name", ASKS)
def test_every_step_that_serves_a_fit_is_refused_before_anything_is_computed(name):
    federation = federate(secure=False)
    session = federation.begin(CoxSite)
    with pytest.raises(RefusedByPolicy, match=REASON):
        session.sum(CoxSite.steps()[name], ASKS[name])
    entry = federation.ledgers["s0"].entries[-1]
    assert (entry["event"], entry["step"]) == ("refusal", name)
    assert "max_parameters_per_patient" in entry["reason"]


def test_a_boosted_cox_learner_is_a_model_of_one_site():
    session = federate().begin(BoostSite)
    fields = boosting.FitCox.declarations()
    request = boosting.FitCox(**{name: _value(field) for name, field in fields.items()})
    with pytest.raises(RefusedByPolicy, match=REASON):
        session.ask(BoostSite.fit_cox, request)


def test_proportional_hazards_of_all_sites_count_too():
    session = federate(secure=False).begin(BoostSite)
    request = boosting.Coefficients(
        **{name: np.zeros(D) if field.kind == "array" else _value(field) for name, field in _fields_of_coefficients()}
    )
    with pytest.raises(RefusedByPolicy, match=REASON):
        session.sum(BoostSite.sum_hazards, request)


def _fields_of_coefficients():
    return boosting.Coefficients.declarations().items()


def _value(field):
    return {"count": 1, "number": 1.0, "text": "breslow", "flag": False}[field.kind]


def test_the_refusal_names_no_number_of_patients():
    with pytest.raises(RefusedByPolicy, match=REASON) as caught:
        mc.survival.FedCox(alpha=1.0).fit(federate(secure=False, policy=SMALL))
    assert str(N) not in str(caught.value)
