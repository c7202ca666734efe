"""Result of an audit, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from multicentre.core.calls import Protection
from multicentre.privacy.conversions import epsilon_of_gdp
from multicentre.privacy.guarantee import Guarantee
from multicentre.studies.audit.canary import ROUNDING
from multicentre.studies.audit.scores import Attack, Separation, auc_of_gdp, largest_bound

Verdict = Literal["consistent", "violated"]

STANDARD_ERRORS = 5.0  # exceeded by chance in fewer than one in a million audits
_LIMITS = (
    "An audit shows what one attacker learned about one patient at one site. It can refute a guarantee and never prove "
    "it: another attack, or a patient with more influence, may reveal more."
)


@dataclass(frozen=True)
class Scores:
    """Distance between runs with the canary and runs without, and the best test.

    Parameters
    ----------
    separation : Separation
    attack : Attack
        Test by which epsilon is bounded.
    """

    separation: Separation
    attack: Attack


@dataclass(frozen=True)
class AuditResult:
    """Result of an audit of differential privacy.

    Parameters
    ----------
    guarantee : Guarantee
        Claimed guarantee, for a patient of one site.
    protection : {"unmasked", "masked"}
        Protection of summands.
    site : str
        Site of the canary.
    canary : str
        Description of the canary.
    n_runs : int
        Number of fits with the canary, and of fits without.
    confidence : float
        Probability with which the lower bound holds.
    sensitivity_ratio : float
        Largest change of a field by the canary, relative to the declared sensitivity.
    field : str
        Field with the largest change.
    unprotected : tuple of str
        Fields without noise that differed with the canary.
    reach : float
        Expected separation under the planned noise.
    mu : float or None
        Largest separation that the claim allows; None unless all noise is Gaussian.
    scores : Scores or None
        None if the canary exceeds the declared sensitivity; no runs are made then.
    """

    guarantee: Guarantee
    protection: Protection
    site: str
    canary: str
    n_runs: int
    confidence: float
    sensitivity_ratio: float
    field: str
    unprotected: tuple[str, ...]
    reach: float
    mu: float | None
    scores: Scores | None

    @property
    def findings(self) -> list[str]:
        """Evidence against the claim, one sentence each."""
        evidence = [f"{name} has no noise and differs when the canary is present." for name in self.unprotected]
        if self.sensitivity_ratio > 1 + ROUNDING:
            evidence.append(
                f"One patient changes {self.field} by {self.sensitivity_ratio:.3g} times the declared sensitivity."
            )
        if self.scores is not None:
            evidence += self._findings_of_scores(self.scores)
        return evidence

    @property
    def verdict(self) -> Verdict:
        """Verdict: "violated" if there is evidence against the claim."""
        return "violated" if self.findings else "consistent"

    @property
    def epsilon_lower_bound(self) -> float | None:
        """Lower bound on epsilon that the runs prove."""
        return None if self.scores is None else self.scores.attack.epsilon

    @property
    def epsilon_estimate(self) -> float | None:
        """Epsilon of Gaussian noise with the observed separation: an estimate, not a bound."""
        if self.scores is None:
            return None
        return epsilon_of_gdp(max(self.scores.separation.d_prime, 0.0), self.guarantee.delta)

    @property
    def largest_bound(self) -> float:
        """Largest lower bound on epsilon that this number of runs can prove."""
        return largest_bound(self.n_runs, self.guarantee.delta, self.confidence) if self.scores else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "verdict": self.verdict,
            "findings": self.findings,
            "claim": {**asdict(self.guarantee), "sentence": str(self.guarantee), "mu": self.mu},
            "protection": self.protection,
            "site": self.site,
            "canary": self.canary,
            "runs_with": self.n_runs if self.scores else 0,
            "runs_without": self.n_runs if self.scores else 0,
            "confidence": self.confidence,
            "sensitivity_ratio": self.sensitivity_ratio,
            "field": self.field,
            "reach": self.reach,
            "epsilon_lower_bound": self.epsilon_lower_bound,
            "largest_bound": self.largest_bound,
            "epsilon_estimate": self.epsilon_estimate,
            **({} if self.scores is None else asdict(self.scores)),
        }

    def __str__(self) -> str:
        return "\n".join([*self._rows(), "", *self._conclusion(), _LIMITS])

    def _findings_of_scores(self, scores: Scores) -> list[str]:
        evidence = []
        if scores.attack.epsilon > self.guarantee.epsilon:
            evidence.append(
                f"Epsilon is at least {scores.attack.epsilon:.3g} with a confidence of {self.confidence:.0%}; "
                f"{self.guarantee.epsilon:.3g} is claimed."
            )
        separation = scores.separation
        if self.mu is not None and not separation.d_prime <= self.mu + STANDARD_ERRORS * _error(separation):
            evidence.append(
                f"Runs with the canary are {separation.d_prime:.3g} standard deviations from those without; the claim "
                f"allows at most {self.mu:.3g}. There is less noise than planned."
            )
        return evidence

    def _rows(self) -> list[str]:
        share = "" if self.mu is None else f"; it can reach {self.reach / self.mu:.0%} of the allowed separation"
        rows = [
            ("claimed", str(self.guarantee)),
            ("canary", f"{self.canary}, added at {self.site}{share}"),
            ("attacker", "sees masked sums" if self.protection == "masked" else "sees the site's own answers"),
            ("sensitivity", f"{self.sensitivity_ratio:.4g} of that declared by {self.field}"),
        ]
        if self.scores is not None:
            rows += self._rows_of_scores(self.scores)
        width = max(len(name) for name, _ in rows)
        return [f"{name.ljust(width)}  {value}" for name, value in rows]

    def _rows_of_scores(self, scores: Scores) -> list[tuple[str, str]]:
        separation, attack = scores.separation, scores.attack
        most = "" if self.mu is None else f"; the claim allows {self.mu:.3f}"
        area = "" if self.mu is None else f"; the claim allows {auc_of_gdp(self.mu):.3f}"
        hits = f"{attack.hits} of {attack.n_hit} hits, {attack.false_alarms} of {attack.n_false} false alarms"
        proven = f"{attack.epsilon:.3g} or more, with a confidence of {self.confidence:.0%}"
        return [
            ("runs", f"{self.n_runs} with the canary, {self.n_runs} without"),
            ("separation d'", f"{separation.d_prime:.3f} (standard error {separation.standard_error:.3f}){most}"),
            ("area under curve", f"{separation.auc:.3f}{area}"),
            (f'test "{attack.predicts}"', hits),
            ("epsilon, proven", f"{proven}; {self.guarantee.epsilon:.3g} is claimed"),
            ("epsilon, provable", f"{self.largest_bound:.3g} is the most that this number of runs can prove"),
            ("epsilon, estimated", f"{self.epsilon_estimate:.3g} from d'; an estimate, not a bound"),
        ]

    def _conclusion(self) -> list[str]:
        if self.findings:
            return ["VIOLATED. The claim does not hold for this method with this noise.", *self.findings]
        return ["CONSISTENT. The audit found no evidence against the claim."]


def _error(separation: Separation) -> float:
    return separation.standard_error if separation.d_prime < float("inf") else 0.0
