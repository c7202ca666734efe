"""What an audit found, for people and for machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from multicentre.federation.engine import Protection
from multicentre.privacy.accounting import epsilon_of_gdp
from multicentre.privacy.guarantee import Guarantee
from multicentre.studies.audit.canary import ROUNDING
from multicentre.studies.audit.scores import Attack, Separation, auc_of_gdp, largest_bound

Verdict = Literal["consistent", "violated"]

STANDARD_ERRORS = 5.0
_CANNOT = (
    "An audit shows what one attacker gained from one patient at one site. It can refute a guarantee, never prove it: "
    "an attack that was not tried, or a patient who matters more, may gain more."
)


@dataclass(frozen=True)
class Scores:
    """How runs with the canary were told from runs without.

    Parameters
    ----------
    separation : Separation
    attack : Attack
        The test by which epsilon is bounded.
    """

    separation: Separation
    attack: Attack


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    Parameters
    ----------
    guarantee : Guarantee
        The claim, for a patient of one site.
    protection : {"unmasked", "masked"}
        How sums left the sites.
    site : str
        Where the canary was put.
    canary : str
        How it was made.
    n_runs : int
        Fits with it, and as many without.
    confidence : float
        With which the lower bound holds.
    sensitivity_ratio : float
        The most that the canary moved a field, over what the field declares.
    field : str
        That field.
    betrayed : tuple of str
        Fields without noise that differed with the canary.
    reach : float
        Separation to expect of the canary under the planned noise.
    mu : float or None
        Largest separation that the claim allows; None where noise is not all Gaussian.
    scores : Scores or None
        None where one patient matters more than declared: no run is needed then.
    """

    guarantee: Guarantee
    protection: Protection
    site: str
    canary: str
    n_runs: int
    confidence: float
    sensitivity_ratio: float
    field: str
    betrayed: tuple[str, ...]
    reach: float
    mu: float | None
    scores: Scores | None

    @property
    def findings(self) -> list[str]:
        """What speaks against the claim, a sentence each."""
        found = [f"{name} carries no noise and differs when the canary is there." for name in self.betrayed]
        if self.sensitivity_ratio > 1 + ROUNDING:
            found.append(
                f"One patient moves {self.field} by {self.sensitivity_ratio:.3g} times the declared sensitivity."
            )
        if self.scores is not None:
            found += self._findings_of_scores(self.scores)
        return found

    @property
    def verdict(self) -> Verdict:
        """Whether something speaks against the claim."""
        return "violated" if self.findings else "consistent"

    @property
    def epsilon_lower_bound(self) -> float | None:
        """What the runs prove of epsilon, at least."""
        return None if self.scores is None else self.scores.attack.epsilon

    @property
    def epsilon_estimate(self) -> float | None:
        """Epsilon if the noise were Gaussian with the separation that was seen: an estimate, no bound."""
        if self.scores is None:
            return None
        return epsilon_of_gdp(max(self.scores.separation.d_prime, 0.0), self.guarantee.delta)

    @property
    def largest_bound(self) -> float:
        """The most that so many runs could prove of epsilon."""
        return largest_bound(self.n_runs, self.guarantee.delta, self.confidence) if self.scores else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the result in dicts, lists, texts and numbers."""
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
        return "\n".join([*self._rows(), "", *self._conclusion(), _CANNOT])

    def _findings_of_scores(self, scores: Scores) -> list[str]:
        found = []
        if scores.attack.epsilon > self.guarantee.epsilon:
            found.append(
                f"Epsilon is at least {scores.attack.epsilon:.3g} with a confidence of {self.confidence:.0%}, and "
                f"{self.guarantee.epsilon:.3g} is claimed."
            )
        apart = scores.separation
        if self.mu is not None and not apart.d_prime <= self.mu + STANDARD_ERRORS * _error(apart):
            found.append(
                f"Runs with the canary lie {apart.d_prime:.3g} standard deviations from those without, and "
                f"{self.mu:.3g} is the most that the claim allows: there is less noise than planned."
            )
        return found

    def _rows(self) -> list[str]:
        share = "" if self.mu is None else f"; it can reach {self.reach / self.mu:.0%} of what the claim allows"
        rows = [
            ("claimed", str(self.guarantee)),
            ("canary", f"{self.canary}, put in at {self.site}{share}"),
            ("attacker", "sees masked sums" if self.protection == "masked" else "sees the site's own answers"),
            ("sensitivity", f"{self.sensitivity_ratio:.4g} of what {self.field} declares"),
        ]
        if self.scores is not None:
            rows += self._rows_of_scores(self.scores)
        width = max(len(name) for name, _ in rows)
        return [f"{name.ljust(width)}  {value}" for name, value in rows]

    def _rows_of_scores(self, scores: Scores) -> list[tuple[str, str]]:
        apart, attack = scores.separation, scores.attack
        most = "" if self.mu is None else f"; the claim allows {self.mu:.3f}"
        area = "" if self.mu is None else f"; the claim allows {auc_of_gdp(self.mu):.3f}"
        hits = f"{attack.hits} of {attack.n_hit} hits, {attack.false_alarms} of {attack.n_false} false alarms"
        proven = f"{attack.epsilon:.3g} or more, with a confidence of {self.confidence:.0%}"
        return [
            ("runs", f"{self.n_runs} with the canary, {self.n_runs} without"),
            ("separation d'", f"{apart.d_prime:.3f} (standard error {apart.standard_error:.3f}){most}"),
            ("area under curve", f"{apart.auc:.3f}{area}"),
            (f'test "{attack.says}"', hits),
            ("epsilon, proven", f"{proven}; {self.guarantee.epsilon:.3g} is claimed"),
            ("epsilon, provable", f"{self.largest_bound:.3g} is the most that so many runs can prove"),
            ("epsilon, estimated", f"{self.epsilon_estimate:.3g} from d': an estimate, no bound"),
        ]

    def _conclusion(self) -> list[str]:
        if self.findings:
            return ["VIOLATED. The claim does not hold of this method with this noise.", *self.findings]
        return ["CONSISTENT. Nothing that the audit saw speaks against the claim."]


def _error(apart: Separation) -> float:
    return apart.standard_error if apart.d_prime < float("inf") else 0.0
