"""A policy that names a distribution is met only by the installed distribution that provides the site part."""

import sys

import pytest

from multicentre.core.calls import Call
from multicentre.core.messages import Nothing
from multicentre.errors import ConfigurationError, RefusedByPolicy
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre.privacy.allowed_methods import Provider, check_allowed, find_objection, parse_allowed, provider_of
from multicentre.privacy.card import disclosure_card
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.patient_counts import People
from multicentre.privacy.policy import Policy

SITE = """
from dataclasses import dataclass
import numpy as np
from multicentre.extend import Nothing, Release, SitePart, number, step

@dataclass(frozen=True)
class AgeSum(Release):
    total: float = number("sum of ages, years", bound=1e6)

class MeanAge(SitePart):
    method, holds = "mean-age", np.ndarray

    @step(releases=AgeSum, when="once", summed=True)
    def add_ages(self, message: Nothing) -> AgeSum:
        "Add the ages."
        return AgeSum(float(self.data.sum()), patients=len(self.data))
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution with one package, as pip does: the package, its metadata and its entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(distribution, version, package, target=None):
        (tmp_path / f"{package}.py").write_text(SITE)
        folder = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (folder / "entry_points.txt").write_text(f"[multicentre.methods]\nmean-age = {target or package}:MeanAge\n")
        sys.modules.pop(package, None)
        part = __import__(package).MeanAge
        monkeypatch.delitem(sys.modules, package)
        return part

    return installed


def admit(part, *methods):
    gate = Guard(Policy(methods=methods), Ledger(), People(one_each=True))
    try:
        gate.admit(Call("study", "0.1", 4, part.add_ages, Nothing(), ("a", "b", "c"), None))
    except RefusedByPolicy:
        return gate.ledger.entries[-1]["reason"]
    return ""


ENTRY = "mean-age @ own-distribution >= 1.2"


def test_the_accepted_distribution_runs(install):
    part = install("own-distribution", "1.3", "own_package")
    assert admit(part, ENTRY) == admit(part, "mean-age") == admit(part, "mean-age @ Own_Distribution") == ""


def test_the_same_method_of_another_distribution_is_refused(install):
    part = install("other-distribution", "2.0", "other_package")
    assert "method mean-age of other-distribution 2.0; it must be provided by own-distribution>=1.2" in admit(
        part, ENTRY
    )


def test_the_same_method_of_another_distribution_is_refused_where_both_are_installed(install):
    install("own-distribution", "1.3", "own_package")
    assert "of other-distribution 2.0" in admit(install("other-distribution", "2.0", "other_package"), ENTRY)


@pytest.mark.parametrize("version", ["1.1", "1.2rc1", "0.9", "1.1.post7"])
def test_an_older_version_is_refused(install, version):
    assert f"of own-distribution {version}" in admit(install("own-distribution", version, "own_package"), ENTRY)


def test_a_package_that_two_distributions_claim_has_no_provider(install):
    part = install("own-distribution", "1.3", "own_package")
    install("other-distribution", "2.0", "own_package")
    assert provider_of(part) is None
    assert "of an unknown distribution" in admit(part, ENTRY)


def test_a_part_without_an_installed_distribution_is_refused(install):
    part = install("own-distribution", "1.3", "own_package", target="elsewhere")
    assert "of an unknown distribution" in admit(part, ENTRY)


def test_one_of_several_entries_suffices(install):
    part = install("own-distribution", "1.3", "own_package")
    assert admit(part, "mean-age @ other-distribution", ENTRY) == ""
    assert find_objection(("mean-age @ other-distribution", "fed-cox"), "mean-age", part).endswith("other-distribution")


def test_the_card_shows_distribution_and_version(install):
    card = disclosure_card(install("own-distribution", "1.3", "own_package"))
    assert card.providers == ("own-distribution 1.3",)
    assert "Provided by own-distribution 1.3." in str(card)
    joined = card.joined(disclosure_card(MvPPCASite))
    assert joined.to_dict()["providers"] == ("own-distribution 1.3", str(provider_of(MvPPCASite)))


@pytest.mark.parametrize(
    "entry",
    [
        "mean-age @",
        "@ own-distribution",
        "mean-age @ own distribution",
        "mean-age @ own >= x y",
        "mean-age @ own[extra]",
        "mean-age @ own @ https://example.org/own.whl",
        "mean-age @ own; python_version > '3'",
    ],
)
def test_an_invalid_entry_is_refused(entry):
    with pytest.raises(ConfigurationError, match="an entry of methods must be"):
        Policy(methods=(entry,))


@pytest.mark.parametrize(
    ("entry", "provider", "is_accepted"),
    [
        ("mean-age", None, True),
        ("mean-age", Provider("any", "0.1"), True),
        ("mean-age @ own", None, False),
        ("mean-age @ own", Provider("own", "0.1"), True),
        ("mean-age @ own-x", Provider("Own_X", "0.1"), True),
        ("mean-age @ own", Provider("other", "0.1"), False),
        ("mean-age @ own >= 1.2", Provider("own", "1.2"), True),
        ("mean-age @ own >= 1.2", Provider("own", "1.3rc1"), True),  # the steward installed it
        ("mean-age @ own >= 1.2", Provider("own", "1.2rc1"), False),
        ("mean-age @ own == 1.2", Provider("own", "1.2.post1"), False),
    ],
)
def test_a_distribution_is_accepted_by_name_and_version(entry, provider, is_accepted):
    assert parse_allowed(entry).accepts(provider) is is_accepted


def test_without_a_part_only_the_name_is_compared():
    allowed = ("mean-age @ nowhere-installed >= 9", "fed-cox")
    assert find_objection(allowed, "mean-age") is None
    assert find_objection(allowed, "fed-cox", MvPPCASite) is None
    assert find_objection(allowed, "fed-glm") == find_objection((), "fed-glm") == ""
    assert find_objection(None, "fed-glm") is None
    assert find_objection(allowed, "mean-age", MvPPCASite).endswith("it must be provided by nowhere-installed>=9")


def test_every_entry_of_a_list_is_checked():
    check_allowed(None)
    check_allowed(["a", "b @ c"])
    with pytest.raises(ConfigurationError, match="got 'b @'"):
        check_allowed(["a", "b @"])
