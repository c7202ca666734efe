"""Steps know their part, their ask and their card; sites draw streams of their own."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing, number, text, texts
from multicentre.core.steps import Acknowledgement, Release, SitePart, step
from multicentre.errors import ConfigurationError, MessageError
from multicentre.privacy.card import disclosure_card
from support.toy_method import Guess, MeanSite, Residuals, Size, federate, toy_sites
from support.toy_private import ClippedSite, PrivateMean


class ChildSite(MeanSite):
    """Inherits one step, redefines one, withdraws none and adds one."""

    method = "toy-child"

    @step(releases=Size, when="once")
    def size(self, request: Guess) -> Size:
        """Tell twice the number."""
        return Size(2.0 * len(self.data), patients=len(self.data))


class CurtSite(MeanSite):
    """Withdraws a step."""

    method = "toy-curt"
    size = None


def test_an_inherited_step_belongs_to_the_heir():
    assert ChildSite.residuals.part is ChildSite
    assert ChildSite.residuals.method == "toy-child"
    assert ChildSite.residuals is ChildSite.residuals
    assert MeanSite.residuals.part is MeanSite
    assert list(ChildSite.steps()) == ["residuals", "size"]
    assert ChildSite.steps()["size"].purpose == "Tell twice the number."


def test_a_withdrawn_step_is_not_offered():
    assert list(CurtSite.steps()) == ["residuals"]


@pytest.mark.parametrize("strict", [False, True])
def test_heir_and_parent_run_in_one_federation(strict):
    federation, request = federate(strict=strict), Guess(np.zeros(3), 0)
    assert federation.begin(MeanSite).ask(MeanSite.size, request)["site-0"].n == 30.0
    assert federation.begin(ChildSite).ask(ChildSite.size, request)["site-0"].n == 60.0


def test_a_step_knows_what_it_takes():
    assert MeanSite.residuals.request_type is Guess
    assert MeanSite.residuals.releases is Residuals


@pytest.mark.parametrize("strict", [False, True])
def test_another_ask_than_the_step_takes_is_refused(strict):
    federation = federate(strict=strict).begin(MeanSite)
    with pytest.raises(MessageError, match="must be Guess; got Nothing"):
        federation.ask(MeanSite.size, Nothing())
    with pytest.raises(MessageError, match="must be finite"):
        federation.ask(MeanSite.size, Guess(np.full(3, np.nan), 0))


def test_a_part_runs_as_plain_python():
    assert MeanSite("lyon", np.ones((4, 3))).size(Guess(np.zeros(3), 0)).n == 4.0


def test_a_part_refuses_data_of_another_type():
    with pytest.raises(ConfigurationError, match=r"^site-0: the data for toy-mean must be ndarray; got list\. Give"):
        federate({"site-0": [1.0]}).begin(MeanSite).ask(MeanSite.size, Guess(np.zeros(3), 0))


def test_a_step_outside_a_part_says_so():
    lonely = step(releases=Size)(lambda part, request: None)
    with pytest.raises(ConfigurationError, match="must be declared in a site part"):
        _ = lonely.part


def test_a_summed_step_must_answer_with_numbers():
    @dataclass(frozen=True)
    class Words(Release):
        word: str = text("x")

    with pytest.raises(MessageError, match="a summed field must be an array of numbers"):
        step(releases=Words, summed=True)


def test_a_step_is_called_on_request_and_site_by_site_unless_declared_otherwise():
    class Plain(SitePart):
        @step(releases=Size)
        def act(self, request: Guess) -> Size:
            """Act.

            At length.
            """

    assert (Plain.act.when, Plain.act.summed, Plain.act.releases) == ("on request", False, Size)
    assert (Plain.act.name, Plain.act.owner, Plain.act.purpose) == ("act", Plain, "Act.")
    declared = step(releases=Residuals, when="once", summed=True)(lambda part, request: None)
    assert (declared.when, declared.summed, declared.releases, declared.purpose) == ("once", True, Residuals, "")


def test_a_summed_step_declares_its_ranges_and_one_about_single_patients_its_permissions():
    @dataclass(frozen=True)
    class Boundless(Release):
        amount: float = number("x")

    @dataclass(frozen=True)
    class Single(Release):
        individual: ClassVar[bool] = True
        amount: float = number("x")

    assert step(releases=Boundless)
    with pytest.raises(MessageError, match=r"Boundless\.amount: a summed field must declare its range"):
        step(releases=Boundless, summed=True)
    with pytest.raises(MessageError, match=r"Single\.amount: .*must name a permission of the policy"):
        step(releases=Single)
    assert Single(1.0, patients=400).patients_behind("amount", "") == 1


def test_the_patients_behind_a_value_are_those_of_its_key_or_else_of_its_field():
    size = Size(3.0, patients={"n": 30, "imaging": 12})
    assert [size.patients_behind("n", key) for key in ("", "imaging", "other")] == [30, 12, 30]
    assert size.patients_behind("other", "") is None
    assert Size(3.0, patients=7).patients_behind("n", "imaging") == 7
    assert Size(3.0).patients_behind("n", "") is None


def test_a_release_costs_privacy_when_a_field_depends_on_patients():
    @dataclass(frozen=True)
    class Named(Release):
        columns: tuple = texts("columns", public=True)

    @dataclass(frozen=True)
    class Mixed(Named):
        amount: float = number("x")

    assert Mixed.tells_of_patients()
    assert not Named.tells_of_patients()
    assert not Acknowledgement.tells_of_patients()


def test_a_part_holds_what_it_was_given_and_nothing_else():
    rows = np.ones((4, 3))
    part = MeanSite("lyon", rows)
    assert (part.site, part.data is rows) == ("lyon", True)
    assert (part.folds, part.division, part.alignment, part.state, part.key, part.common) == (
        None,
        "",
        None,
        *[None] * 3,
    )


def test_only_regressions_state_coefficients():
    assert MeanSite("lyon", np.ones((4, 3))).n_parameters(Guess(np.zeros(3), 0)) == 0


def test_streams_differ_by_site_seed_and_purpose_and_are_stable():
    def draw(site, seed, *purpose):
        return MeanSite(site, np.ones((1, 1))).generator(seed, *purpose).integers(2**62)

    names = ["a", "b", "ab", "ba", "site-1", "site-11", "é"]
    draws = {
        draw(name, seed, *p) for name in names for seed in (0, 1) for p in ((), (0,), (1,), (0, 0), (0, 1), (1, 0))
    }
    assert len(draws) == len(names) * 2 * 6
    assert draw("lyon", 3, 1) == draw("lyon", 3, 1)
    assert draw("lyon", 3, 1) == 4170523038907822931


def test_the_card_lists_every_field_and_what_is_remembered():
    card = disclosure_card(MeanSite, policy=mc.Policy(min_patients=20), n_sites=2, protection="unmasked")
    assert [(line.step, line.field) for line in card.lines] == [
        ("residuals", "total"),
        ("residuals", "n"),
        ("residuals", "calls"),
        ("size", "n"),
    ]
    assert {line.seen for line in card.lines if line.step == "residuals"} == {"coordinator's process, which adds"}
    assert card.lines[-1].seen == "coordinator, site by site"
    printed = str(card)
    assert "at least 20 patients" in printed
    assert "running average of the site's residuals" in printed
    assert "a sum of two sites reveals to each site the other's share" in printed
    assert "differential privacy" in printed
    masked = disclosure_card(MeanSite, protection="masked", n_sites=3)
    assert masked.lines[0].seen == "nobody; only the sum"
    assert not any("sum of two" in caveat for caveat in masked.caveats)
    assert masked.lines[0].span == "±6.9e+10, ±4e-08"
    assert not any(line.span or line.noise for line in card.lines)


def test_the_card_of_a_private_fit_lists_what_is_planned_and_promises_it():
    planned = disclosure_card(ClippedSite, protection="masked", n_sites=3, plan=PrivateMean(1.0).privacy_plan())
    assert [(line.step, line.field) for line in planned.lines] == [
        ("clipped_sum", "total"),
        ("clipped_sum", "patients_counted"),
    ]
    assert planned.lines[0].noise == "gaussian 5.28 in the sum (one patient: 1)"
    assert "(epsilon 1, delta 1e-05)-differential privacy for one patient" in planned.warnings[-1]
    assert "noise" in str(planned)
    apart = disclosure_card(
        ClippedSite, protection="unmasked", plan=PrivateMean(1.0).privacy_plan(), sites_per_patient=2
    )
    assert apart.lines[0].noise == "gaussian 5.28 at each site (one patient: 1)"
    assert "up to 2 sites" in apart.warnings[-1]


def test_the_card_promises_what_holds_at_every_site():
    policies = {name: mc.Policy(min_patients=5 + i) for i, name in enumerate(toy_sites())}
    assert federate(policy=policies).card(MeanSite).min_patients == 5
    assert SitePart.steps() == {}
