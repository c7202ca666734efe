"""A disclosure card of any method lists every field, defines every letter, and claims nothing that does not hold."""

import contextlib
import dataclasses
import importlib
import itertools
import pkgutil
import re
from pathlib import Path

import pytest

import multicentre as mc
import multicentre_papers
from multicentre.core.steps import SitePart
from multicentre.errors import MissingExtra
from multicentre.estimator.base import find_estimator
from multicentre.estimator.registry import METHODS
from multicentre.privacy.card import disclosure_card
from multicentre.privacy.policy import RELATIONS
from multicentre.studies.disclosure_cards import describe_method

CELL = "a cell of a masked total may be the value of one patient"


def parts_below(kind):
    return {kind}.union(*(parts_below(child) for child in kind.__subclasses__()))


def parts_of_the_package():
    for package in (mc, multicentre_papers):
        for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not one.name.endswith("__main__"):
                with contextlib.suppress(ImportError):  # parts of extras that are not installed
                    importlib.import_module(one.name)
    ours = ("multicentre.", "multicentre_papers.")
    parts = {part for part in parts_below(SitePart) if part.__module__.startswith(ours) and part.method}
    releasing = [part for part in parts if any(step.releases.concerns_patients for step in part.steps().values())]
    return sorted(releasing, key=lambda part: part.method)


PARTS = parts_of_the_package()
every_part = pytest.mark.parametrize("part", PARTS, ids=lambda part: part.method)


def released_by(part):
    """Return (step, field, declaration) of everything that a part releases about patients."""
    return [
        (step, name, declaration)
        for step in part.steps().values()
        if step.releases.concerns_patients
        for name, declaration in step.releases.declarations().items()
    ]


def test_the_parts_are_those_of_all_methods():
    found = {part.method for part in PARTS}
    for name in METHODS:
        with contextlib.suppress(MissingExtra):
            assert find_estimator(name).site_part.method in found
    assert len(found) > 30


@every_part
def test_every_field_of_every_step_is_on_the_card(part):
    card = disclosure_card(part)
    released = [(step.name, name) for step, name, _ in released_by(part)]
    assert [(line.step, line.name) for line in card.lines] == released
    table = str(card)
    for step, name, declaration in released_by(part):
        keyed = r"\[by name\]" if declaration.keyed else ""
        assert re.search(rf"(?m)^{step.name} .* {name}{keyed}  ", table), (step.name, name)
        assert f"  {step.name}.{name}{'[by name]' if declaration.keyed else ''}: {declaration.what}" in table


@every_part
def test_every_letter_of_a_shape_is_defined_before_it_is_used(part):
    letters = {side for *_, one in released_by(part) for side in one.shape if isinstance(side, str)}
    card = disclosure_card(part)
    assert {one.letter for one in card.used_letters} == letters
    for one in card.used_letters:
        assert one.what != "not explained by the method", f"add {one.letter!r} to {part.__name__}.lengths"
    printed = str(card)
    for one in card.used_letters:
        defined = re.search(rf"(?m)^{re.escape(one.letter)} +{re.escape(one.meaning)}", printed)
        assert defined is not None
        assert defined.start() < printed.index("step  ") < printed.index(" array")


@every_part
def test_no_card_claims_that_something_released_stays_at_the_site(part):
    card = disclosure_card(part)
    printed = str(card)
    assert not re.search(r"(?i)\bstays?\b", printed)
    (remembered,) = re.findall(r"(?m)^Stored at the site between rounds: (.*)\.$", printed)
    fields = released_by(part)
    for name, what in card.remembered:
        released = [f"{step.name}.{field}" for step, field, one in fields if field == name or one.what == what]
        assert (f"{what} (also released: {', '.join(released)})" in remembered) == bool(released)
        assert what in remembered


# Every value of each setting; all combinations are slow tests.
SOME_POLICIES = [(0, 0, RELATIONS[0], False), (10, 5, RELATIONS[-1], True)]
ALL_POLICIES = list(itertools.product([0, 10], [0, 5], RELATIONS, [False, True]))


@every_part
@pytest.mark.dealt(4)
@pytest.mark.parametrize("protection", ["masked", "unmasked"])
@pytest.mark.parametrize(
    "policies", [SOME_POLICIES, pytest.param(ALL_POLICIES, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_the_sentences_agree_with_the_policy(part, protection, policies):
    steps = [step for step in part.steps().values() if step.releases.concerns_patients]
    for min_patients, min_in_total, relations, exact_times in policies:
        policy = mc.Policy(
            min_patients=min_patients,
            min_patients_in_total=min_in_total,
            relations=relations,
            exact_times=exact_times,
        )
        card = disclosure_card(part, protection=protection, n_sites=3, policy=policy)
        what, how_many, who = card.sentences
        answered = [step for step in steps if not is_refused(step, policy, protection)]
        summed = [step for step in answered if step.summed]
        crowds = [step for step in answered if not step.releases.individual]
        single = [step.name for step in answered if step.releases.individual]

        head = str(card).split("\n\n")
        start = 2 if card.caveats else 1
        assert head[start].split("\n") == [what, how_many, who]
        assert ("shares of totals" in what) == any(step.summed and step in crowds for step in answered)
        assert ("values about single patients" in what) == bool(single)
        assert all(name in what for name in single)
        assert ("times of events as they were recorded" in what) == any(map(has_exact_times, answered))
        for step in steps:
            assert (step not in answered) == bool(re.search(rf"It refuses [^.]*\b{step.name}\b", what))

        if min_patients and crowds:
            assert f"at least {min_patients} patients" in how_many
        elif crowds:
            assert "the policy has no minimum" in how_many.lower()
        assert ("whom no minimum protects" in how_many) == bool(single)
        in_total = bool(min_in_total) and any(step in crowds for step in summed)
        assert (f"at least {min_in_total} patients" in how_many and "(min_patients_in_total)" in how_many) == in_total

        assert ("nobody can read this site's share" in who.lower()) == (protection == "masked" and bool(summed))
        assert ("can read it" in who) == (protection == "unmasked" and bool(summed))
        read_alone = any(not step.summed for step in answered)
        assert ("the values of this site only" in who) == read_alone

        exposed = protection == "masked" and not min_in_total and any(step in crowds for step in summed)
        if single:
            assert card.caveats[0].startswith("values about single patients leave")
        elif crowds and not min_patients:
            assert "a value may be that of one patient" in card.caveats[0]
        elif exposed:
            assert card.caveats[0].startswith(CELL)
        else:
            assert not any(caveat.startswith(CELL) for caveat in card.caveats)


def is_refused(step, policy, protection):
    for one in step.releases.declarations().values():
        if one.permission == "exact_times" and not policy.exact_times:
            return True
        if one.permission.startswith("relations="):
            wanted = one.permission.partition("=")[2]
            wanted = "dense" if step.summed and protection == "unmasked" and wanted == "summed" else wanted
            if RELATIONS.index(policy.relations) < RELATIONS.index(wanted):
                return True
    return False


def has_exact_times(step):
    declarations = step.releases.declarations().values()
    return not step.releases.individual and any(one.permission == "exact_times" for one in declarations)


def test_the_sentences_of_a_private_fit_say_what_its_noise_hides():
    codes = {mode: [f"{mode}{i}" for i in range(9)] for mode in ("diagnosis", "drug")}
    model = mc.phenotyping.DPFact(3, epsilon=2.0, vocabulary=codes)
    plan, asked = model.privacy_plan(), model.planned_steps()
    card = disclosure_card(model.site_part, n_sites=3, plan=plan, requested=asked, parameters=model.get_params())
    assert re.search(r"oise bounds what .* about one patient \(epsilon 2, delta 1e-05\)", card.sentences[1])
    assert not any(CELL in caveat for caveat in card.caveats)
    by_entry = disclosure_card(
        model.site_part, n_sites=3, plan=dataclasses.replace(plan, unit="entry"), requested=asked
    )
    assert by_entry.caveats[0] == "noise hides one entry, not a whole patient."
    assert {letter.letter: letter.number for letter in card.used_letters}["r"] == "3"


@pytest.mark.parametrize("name", METHODS)
def test_the_card_of_a_method_needs_no_study(name):
    try:
        card = describe_method(find_estimator(name))
    except MissingExtra as missing:
        pytest.skip(str(missing))
    assert str(card).startswith(f"Disclosure card of {card.method}\n\nCaveat: ")
    assert not any(letter.what == "not explained by the method" for letter in card.used_letters)


def test_the_page_of_commands_shows_how_a_card_begins():
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    shown = page.partition("```text\nDisclosure card")[2].partition("```")[0]
    card = str(describe_method(find_estimator("kaplan-meier"))).partition("\n\nstep ")[0]
    assert f"Disclosure card {shown}".split() == card.split()
