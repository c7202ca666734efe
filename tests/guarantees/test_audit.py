"""An audit agrees with honest noise and catches noise that is too small, clips that are missing, and what has no noise.

The noise is drawn from a seed: with 250 runs of the real one, a bound above the claim has a probability of up to 6.2e-5
at epsilon 1 (binomials, at the worst threshold). That the real noise follows its law is tested in
tests/unit/privacy/test_mechanisms.py, and that releases carry it in test_differential_privacy.py.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.core.messages import Message, Nothing, array, count, texts
from multicentre.core.noise_plan import Noise, Plan, Planned
from multicentre.core.steps import Release, SitePart, step
from multicentre.errors import ConfigurationError
from multicentre.estimator.base import FederatedEstimator
from multicentre.privacy import charging
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.studies.audit import audit
from multicentre.studies.audit.runner import record_fit
from multicentre.studies.audit.scores import auc_of_gdp, largest_bound
from multicentre.studies.audit.transcript import Recording, Replays
from support import toy_private
from support.toy_private import PATIENTS, PrivateMean, clip, private_sites

DELTA = 1e-5
pytestmark = pytest.mark.usefixtures("seeded_noise")


def weaken_noise(monkeypatch, factor):
    honest = charging.gaussian_noise
    monkeypatch.setattr(charging, "gaussian_noise", lambda shape, scale: honest(shape, scale / factor))


def mu_of(epsilon):
    return math.sqrt(2 * rho_of_epsilon(epsilon, DELTA))


def agrees(found, epsilon, errors=5):
    apart = found.scores.separation
    assert found.verdict == "consistent", str(found)
    assert found.epsilon_lower_bound <= epsilon
    assert abs(apart.d_prime - mu_of(epsilon)) <= errors * apart.standard_error
    assert apart.auc == pytest.approx(auc_of_gdp(mu_of(epsilon)), abs=errors * 0.41 / math.sqrt(found.n_runs))


def alone(rows=40):
    return private_sites(1, rows, 2)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0, 8.0])
def test_honest_noise_agrees_with_its_claim(epsilon):
    found = audit(PrivateMean(epsilon), alone(), runs=250)
    assert found.sensitivity_ratio == pytest.approx(1.0)
    assert found.reach == pytest.approx(mu_of(epsilon), rel=1e-6)
    assert found.guarantee.epsilon == pytest.approx(epsilon)
    agrees(found, epsilon)


@pytest.mark.slow
def test_noise_a_sixth_as_large_is_caught(monkeypatch):
    weaken_noise(monkeypatch, 6)
    found = audit(PrivateMean(2.0), alone(), runs=500)
    assert found.verdict == "violated"
    assert found.epsilon_lower_bound > 2.0
    assert found.scores.separation.d_prime == pytest.approx(6 * mu_of(2.0), rel=0.25)
    assert found.epsilon_estimate > 10


def test_half_the_noise_is_caught_where_no_bound_could(monkeypatch):
    weaken_noise(monkeypatch, 2)
    found = audit(PrivateMean(8.0), alone(), runs=150)
    assert largest_bound(150, DELTA) < 8
    assert found.verdict == "violated"
    assert "less noise than planned" in str(found)


def test_no_noise_is_caught(monkeypatch):
    monkeypatch.setattr(charging, "gaussian_noise", lambda shape, scale: np.zeros(shape, dtype=np.int64))
    found = audit(PrivateMean(2.0), alone(), runs=150)
    assert found.verdict == "violated"
    assert found.epsilon_lower_bound == pytest.approx(largest_bound(150, DELTA))
    assert found.epsilon_lower_bound > 2


@pytest.mark.parametrize("reach", [math.inf, 1.01])
def test_a_missing_or_too_wide_clip_is_detected_before_any_run(monkeypatch, reach):
    monkeypatch.setattr(toy_private, "clip", lambda rows: reach * clip(rows / reach) if reach < math.inf else rows)
    found = audit(PrivateMean(2.0), alone(), runs=10)
    assert found.verdict == "violated"
    assert found.scores is None
    assert found.field == "ClippedSum.total"
    assert (
        found.sensitivity_ratio == pytest.approx(reach, rel=1e-6) if reach < math.inf else found.sensitivity_ratio > 10
    )


@pytest.mark.slow
@pytest.mark.parametrize("sabotaged", [False, True])
def test_masked_sums(monkeypatch, sabotaged):
    if sabotaged:
        weaken_noise(monkeypatch, 6)
    found = audit(PrivateMean(4.0), private_sites(2, 40, 2), secure_sum=True, runs=60)
    assert found.protection == "masked"
    if sabotaged:
        assert found.verdict == "violated"
        assert found.scores.separation.d_prime == pytest.approx(6 * mu_of(4.0), rel=0.4)
    else:
        agrees(found, 4.0)


@dataclass(frozen=True)
class Centre(Message):
    """Where rows are measured from."""

    centre: np.ndarray = array("public point", ("d",))


@dataclass(frozen=True)
class Residuals(Release):
    """Sums over patients."""

    total: np.ndarray = array("sum of residuals", ("d",), bound=PATIENTS, sensitivity=1.0)


class TwoSteps(SitePart):
    """Measures rows from the noised answer before, as it should, or from the site's own mean."""

    method = "toy-two-steps"
    holds = np.ndarray
    from_own_mean = False

    @step(releases=Residuals, when="every round")
    def residuals(self, request: Centre) -> Residuals:
        """Sum clipped residuals."""
        centre = self.data.mean(axis=0) if self.from_own_mean else request.centre
        return Residuals(clip(self.data - centre).sum(axis=0), patients=len(self.data))


class Walk(FederatedEstimator):
    """Two releases, the second about the first."""

    site_part = TwoSteps

    def __init__(self, epsilon=2.0):
        self.epsilon = epsilon

    def privacy_plan(self):
        multiplier = rho_of_epsilon(self.epsilon, DELTA) ** -0.5
        return Plan((Planned(TwoSteps.residuals, Noise("gaussian", {"total": multiplier}), 2),), DELTA)

    def _fit(self, federation):
        self.history_ = []
        centre = np.zeros(2)
        for _ in range(2):
            answers = federation.ask(TwoSteps.residuals, Centre(centre))
            centre = centre + sum(one.total for one in answers.values()) / 2
        self.centre_ = centre

    def _state(self):
        return {"centre": self.centre_}, {}

    def _restore(self, arrays, facts):
        self.centre_ = arrays["centre"]

    def assess(self, data, labels=None, *, training=None, training_labels=None):
        return {}


def test_releases_that_depend_on_noised_ones_are_replayed_with_their_own_asks():
    agrees(audit(Walk(8.0), alone(), runs=120), 8.0)


def test_a_contribution_that_depends_on_other_patients_is_caught(monkeypatch):
    monkeypatch.setattr(TwoSteps, "from_own_mean", True)
    found = audit(Walk(4.0), alone(), runs=10)
    assert found.scores is None
    assert found.sensitivity_ratio > 2


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("model", [PrivateMean(2.0, times=2), Walk()], ids=["sums", "requests"])
def test_a_replay_gives_what_the_coordinator_would_hear_without_noise(monkeypatch, model, secure):
    monkeypatch.setattr(charging, "gaussian_noise", lambda shape, scale: np.zeros(shape, dtype=np.int64))
    sites = private_sites(3, 20, 2)
    exposed = np.vstack([sites["site-1"], [[30.0, 0.0]]])
    replays = Replays(model.privacy_plan(), "site-1", sites, exposed)
    with Recording.in_process({**sites, "site-1": exposed}, secure_sum=secure) as federation:
        shown = replays.noised_fields(record_fit(model, federation, "site-1"))
    assert len(shown) == (2 if isinstance(model, Walk) else 4)
    for field in shown:
        np.testing.assert_allclose(field.noised, field.without + field.difference, atol=1e-4)
        assert field.ratio == pytest.approx(1.0)
    assert replays.unprotected([]) == []


def test_a_fit_that_asks_nothing_cannot_be_audited(monkeypatch):
    monkeypatch.setattr(Walk, "_fit", lambda self, federation: setattr(self, "history_", []))
    with pytest.raises(ConfigurationError, match="must release values"):
        audit(Walk(), alone(), runs=10)


@dataclass(frozen=True)
class Head(Release):
    """Patients, counted."""

    n: int = count("patients", sensitivity=1.0)
    size: tuple = texts("size of the site", public=True)


class CountSite(SitePart):
    """Counts, and says how large it is."""

    method = "toy-count"
    holds = np.ndarray
    largest = 1000

    @step(releases=Head, when="once")
    def count(self, request: Nothing) -> Head:
        """Count."""
        return Head(len(self.data), ("small" if len(self.data) <= self.largest else "large",), patients=len(self.data))


class Counted(FederatedEstimator):
    """Sites' counts with geometric noise."""

    site_part = CountSite

    def __init__(self, epsilon=1.0):
        self.epsilon = epsilon

    def privacy_plan(self):
        return Plan((Planned(CountSite.count, Noise("laplace", {"n": 1 / self.epsilon})),), DELTA)

    def _fit(self, federation):
        self.history_ = []
        self.n_ = {site: one.n for site, one in federation.ask(CountSite.count, Nothing()).items()}

    def _state(self):
        return {}, {"n": self.n_}

    def _restore(self, arrays, facts):
        self.n_ = facts["n"]

    def assess(self, data, labels=None, *, training=None, training_labels=None):
        return {}


def test_geometric_noise_has_no_separation_to_be_held_to():
    found = audit(Counted(3.5), alone(), runs=60)
    assert largest_bound(60, DELTA) < 3.5
    assert found.verdict == "consistent"
    assert found.scores.separation.d_prime > 1
    assert found.mu is None
    assert found.sensitivity_ratio == 1.0
    assert "the claim allows" not in str(found)


def test_geometric_noise_that_is_too_small_is_caught(monkeypatch):
    monkeypatch.setattr(charging, "geometric_noise", lambda shape, scale, share: np.zeros(shape, dtype=np.int64))
    assert audit(Counted(1.0), alone(), runs=60).epsilon_lower_bound > 1.5


def test_a_field_without_noise_that_tells_of_a_patient_is_caught(monkeypatch):
    monkeypatch.setattr(CountSite, "largest", 40)
    found = audit(Counted(1.0), alone(rows=40), runs=10)
    assert found.verdict == "violated"
    assert found.unprotected == ("Head.size",)


STUDY = """\
[study]
name = "Ward 7"
method = "fed-mv-ppca"

[parameters]
n_components = 1
epsilon = {epsilon}
reference.a = {{centre = [0, 0], spread = [2, 2]}}

[data]
id_column = "patient"

[sites.lyon]
a = "lyon.csv"

[sites.oslo]
a = "oslo.csv"

[privacy]
secure_sum = {masked}
policy = {{epsilon = 0.1}}
"""


def study(folder, *, epsilon=4.0, masked="false"):
    random = np.random.default_rng(3)
    for name, n in (("lyon", 60), ("oslo", 50)):
        rows = [f"{name}{i},{x!r},{y!r}" for i, (x, y) in enumerate(random.normal(size=(n, 2)).tolist())]
        (folder / f"{name}.csv").write_text("\n".join(["patient,x,y", *rows]) + "\n")
    path = folder / "study.toml"
    text = STUDY.format(epsilon=epsilon, masked=masked)
    path.write_text(text if epsilon else re.sub(r"^(epsilon|reference|policy).*\n", "", text, flags=re.MULTILINE))
    return path


def call(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


@pytest.mark.slow
@pytest.mark.parametrize("masked", ["false", "true"])
def test_the_command_writes_nothing_and_says_consistent(tmp_path, masked):
    path = study(tmp_path, masked=masked)
    before = set(tmp_path.rglob("*"))
    found = call(path, "--runs", 20, "--json")
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert (told["verdict"], told["site"], told["runs_with"]) == ("consistent", "oslo", 20)
    assert told["sensitivity_ratio"] == pytest.approx(1.0, abs=1e-3)
    assert told["claim"]["epsilon"] == pytest.approx(4.0)
    assert "audit: rounds 1 to 20" in found.stderr
    assert set(tmp_path.rglob("*")) == before


def test_the_command_tells_of_a_violation_by_its_status(tmp_path, monkeypatch):
    weaken_noise(monkeypatch, 6)
    found = call(study(tmp_path), "--runs", 50, "--site", "lyon", "--output", tmp_path / "found.json")
    assert found.exit_code == 8, found.output
    assert "VIOLATED" in found.stdout
    assert json.loads((tmp_path / "found.json").read_text())["verdict"] == "violated"


def test_a_study_without_differential_privacy_has_nothing_to_audit(tmp_path):
    found = call(study(tmp_path, epsilon=0))
    assert found.exit_code == 3
    assert "must claim differential privacy" in found.stderr


@pytest.mark.slow
def test_the_study_on_the_page_can_be_audited(tmp_path, monkeypatch):
    page = (Path(__file__).resolve().parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    first, second = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(first, "audit.md", "exec"), {})
    names = {}
    exec(
        compile(second.replace('(read_study("study.toml"))', '(read_study("study.toml"), runs=40)'), "", "exec"), names
    )
    assert names["found"].reach == pytest.approx(names["found"].mu, rel=1e-3)
    found = call("study.toml", "--runs", 10)
    assert found.exit_code == 0, found.output
    said = [line.split("  ")[0] for line in found.stdout.splitlines() if "  " in line]
    shown = [
        line.split("  ")[0] for line in page.split("CONSISTENT")[0].split("```\n")[-1].splitlines() if "  " in line
    ]
    assert [one for one in said if not one.startswith("test")] == [one for one in shown if not one.startswith("test")]
    assert len(shown) == 11
