"""A site adds the noise that a call asks for, on the grid that carries it, and pays before anything leaves."""

import dataclasses
import math
import os
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from multicentre.core.calls import Call, Mask
from multicentre.core.messages import Nothing, number, text
from multicentre.core.noise_plan import Noise, PlanShown
from multicentre.core.steps import Release, SitePart, step
from multicentre.errors import ConfigurationError, RefusedByPolicy
from multicentre.privacy import charging
from multicentre.privacy.charging import Charging
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.privacy.policy import Policy
from multicentre.privacy.secure_sum.fixed_point import plan_grids

FACTS = {"study": "study", "step": "add"}


@dataclass(frozen=True)
class Total(Release):
    total: float = number("sum", bound=8.0, sensitivity=1.0)


@dataclass(frozen=True)
class Tiny(Release):
    total: float = number("sum", bound=8.0, sensitivity=2.0**-37)


@dataclass(frozen=True)
class Version(Release):
    concerns_patients: ClassVar[bool] = False
    version: str = text("installed version")


class Part(SitePart):
    method = "payment"

    @step(releases=Total, summed=True)
    def add(self, request: Nothing) -> Total:
        """Add up."""

    @step(releases=Tiny, summed=True)
    def tiny(self, request: Nothing) -> Tiny:
        """Add up little."""

    @step(releases=Version)
    def version(self, request: Nothing) -> Version:
        """Name the version."""


def noise(multiplier=10.0, mechanism="gaussian"):
    return Noise(mechanism, {"total": multiplier})


def call(which=Part.add, *, peers=("a", "b", "c"), mask=None, planned=None):
    return Call("study", "0.1", 4, which, Nothing(), peers, mask, noise() if planned is None else planned)


def masked(threshold=3, colluding=0, **options):
    return call(mask=Mask("first", 0, threshold, colluding), **options)


def shown(multiplier, times):
    return PlanShown(
        "payment", ("add",), ("gaussian",), np.array([times]), {"add": ("total",)}, {"add": np.array([multiplier])}
    )


def test_a_plan_is_held_against_what_all_its_calls_cost():
    limit = rho_of_epsilon(1.0, 1e-5)
    fitting = math.ceil(3 / (2 * limit) * 100) / 100  # the square of the multiplier with which three calls fit
    Charging(Policy(epsilon=1.0)).review(shown(math.sqrt(fitting), 3))
    with pytest.raises(RefusedByPolicy, match="releases must fit the remaining part of the budget of epsilon 1"):
        Charging(Policy(epsilon=1.0)).review(shown(math.sqrt(fitting), 4))
    Charging(Policy()).review(shown(0.01, 100))


def test_a_call_without_noise_is_refused_where_there_is_a_budget_alone():
    bare = dataclasses.replace(call(), noise=None)
    Charging(Policy()).admit(bare)
    with pytest.raises(RefusedByPolicy) as caught:
        Charging(Policy(epsilon=1.0)).admit(bare)
    assert caught.value.where == "policy, epsilon"


def test_noise_that_does_not_fit_the_release_is_refused():
    with pytest.raises(ConfigurationError, match="must name the release's fields"):
        Charging(Policy()).admit(call(planned=Noise("gaussian", {"other": 1.0})))
    with pytest.raises(ConfigurationError, match=r"Total.total: the noise must be .* steps of the field's grid"):
        Charging(Policy()).admit(call(planned=noise(1e300)))


def test_a_call_that_costs_more_than_is_left_is_refused_before_it_runs():
    site = Charging(Policy(epsilon=1.0))
    site.admit(call())
    with pytest.raises(RefusedByPolicy, match="releases must fit the remaining part of the budget of epsilon 1"):
        site.admit(call(planned=noise(1.0)))
    Charging(Policy()).admit(call(planned=noise(1.0)))


@pytest.mark.parametrize(("colluding", "admitted"), [(0, False), (1, True), (2, True)])
def test_the_shares_of_the_noise_allow_for_as_many_colluding_sites_as_the_policy(colluding, admitted):
    site, asked = Charging(Policy(colluding_sites=1)), masked(3, colluding)
    if admitted:
        site.admit(asked)
        return
    with pytest.raises(ConfigurationError) as caught:
        site.admit(asked)
    assert caught.value.where == "policy, colluding_sites"
    assert caught.value.what == f"shares of the noise must be computed for at least 1 colluding sites; got {colluding}"


@pytest.mark.parametrize(
    ("threshold", "colluding", "peers", "admitted"),
    [
        (1, 0, "abc", True),
        (1, 1, "abc", False),
        (1, 2, "abc", False),
        (3, 0, "abc", True),
        (4, 0, "abc", False),
        (4, 1, "abc", True),
        (2, 0, "", False),
    ],
)
def test_the_noise_is_shared_by_one_site_at_least_and_by_those_that_take_part_at_most(
    threshold, colluding, peers, admitted
):
    site, asked = Charging(Policy()), masked(threshold, colluding, peers=tuple(peers))
    if admitted:
        site.admit(asked)
        return
    with pytest.raises(ConfigurationError) as caught:
        site.admit(asked)
    assert caught.value.where == "policy, colluding_sites"
    assert caught.value.what.startswith("the number of sites that share the noise must be from 1 to ")


def spread(site, asked, n=400):
    return float(np.std([site.add_noise(asked, Total(0.0, patients=30)).total for _ in range(n)]))


@pytest.mark.parametrize(("threshold", "colluding", "sharers"), [(3, 0, 3), (3, 2, 1), (2, 0, 2)])
def test_a_site_adds_the_share_that_as_many_sites_make_up_the_noise_of(threshold, colluding, sharers):
    # The standard deviation of 400 normal numbers is off by a quarter once in 1e12 times.
    assert spread(Charging(Policy()), masked(threshold, colluding)) == pytest.approx(10 / math.sqrt(sharers), rel=0.25)


def test_an_answer_that_leaves_alone_carries_the_whole_noise():
    assert spread(Charging(Policy()), call()) == pytest.approx(10.0, rel=0.25)


def test_masked_noise_lies_on_the_grid_of_the_sum():
    # Over so many sites the grid of the sum is coarser than that of the noise: rounding there would be a second one.
    asked = masked(5000, which=Part.tiny, peers=tuple(map(str, range(8000))), planned=noise(2.0**37))
    step_ = 2.0 ** -plan_grids(Tiny, 8000, asked.noise)["total"].fraction_bits
    released = [Charging(Policy()).add_noise(asked, Tiny(0.1, patients=30)).total for _ in range(20)]
    assert all(value / step_ == round(value / step_) for value in released)
    alone = dataclasses.replace(asked, mask=None)
    # Its grid is at least four times as fine: thirty values all lie on the coarser one once in 4**30 times.
    assert any(
        value / step_ != round(value / step_)
        for value in (Charging(Policy()).add_noise(alone, Tiny(0.1, patients=30)).total for _ in range(30))
    )


def test_what_carries_no_noise_is_left_alone_and_free():
    site = Charging(Policy(epsilon=1.0))
    for asked, answer in (
        (dataclasses.replace(call(), noise=None), Total(1.0, patients=30)),
        (call(Part.version), Version("1.0")),
    ):
        assert site.add_noise(asked, answer) is answer
        assert site.pay(asked, FACTS) == {"epsilon": None, "delta": None}
    assert site.account.entries() == ()


def test_what_is_paid_is_the_cost_at_the_policys_delta():
    site = Charging(Policy(epsilon=1.0, delta=1e-6))
    paid = site.pay(call(), FACTS)
    assert paid == {
        "epsilon": pytest.approx(site.account.spent.epsilon(1e-6)),
        "delta": 1e-6,
        "rho": pytest.approx(0.005),
        "unit": "patient",
        "neighbours": "add-remove",
        "noise": {"mechanism": "gaussian", "total": 10.0},
    }
    (entry,) = site.account.entries()
    assert FACTS.items() <= entry.items()
    assert Charging(Policy(delta=1e-6)).pay(call(), FACTS) == paid


def test_the_account_stands_where_the_policy_says(tmp_path):
    path = tmp_path / "deep" / "a.jsonl"
    site = Charging(Policy(epsilon=1.0, account=str(path)))
    assert not path.exists()
    site.pay(call(), FACTS)
    assert path.exists()
    assert Charging(Policy(account=str(path))).account is None
    assert Charging(Policy(epsilon=1.0)).account.path is None


def test_an_account_that_could_not_be_written_is_refused_before_a_study_begins(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(charging.os, "access", lambda path, mode: asked.append((path, mode)))
    path = tmp_path / "deep" / "a.jsonl"
    with pytest.raises(ConfigurationError) as caught:
        Charging(Policy(epsilon=1.0, account=str(path)))
    assert asked == [(tmp_path.resolve(), os.W_OK)]  # the nearest folder that there is
    assert (caught.value.what, caught.value.where) == (
        "the folder of the account must be writable; it is not",
        str(path.resolve()),
    )
    assert caught.value.hint == "Permit the user of the site to write to it."
    assert Charging(Policy(epsilon=1.0)).account.path is None
