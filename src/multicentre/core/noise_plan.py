"""Plan of the noise in all releases of a fit, which sites compare with their budgets before the fit begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Declaration, Message, array, arrays, place, text, texts
from multicentre.core.steps import Acknowledgement, Release, SitePart, Step, step
from multicentre.errors import ConfigurationError, MessageError

Mechanism = Literal["gaussian", "laplace"]
Unit = Literal["patient", "record", "entry"]


@dataclass(frozen=True)
class Noise:
    """The noise of one release.

    Parameters
    ----------
    mechanism : {"gaussian", "laplace"}
        Law of the noise, on a grid of whole steps.
    multipliers : mapping of str to float
        For each field, the scale of the noise (a Gaussian's standard deviation, a Laplace law's scale) in units of the
        field's declared sensitivity; above 0.
    """

    mechanism: Mechanism
    multipliers: Mapping[str, float]

    def __post_init__(self) -> None:
        if self.mechanism not in get_args(Mechanism):
            raise ConfigurationError(
                f"mechanism must be one of 'gaussian', 'laplace'; got {self.mechanism!r}",
                where="noise",
                hint="Use gaussian.",
            )
        for name, multiplier in self.multipliers.items():
            if not 0 < multiplier < float("inf"):
                raise ConfigurationError(
                    f"a noise multiplier must be positive and finite; got {multiplier}", where=f"noise, {name}"
                )

    def check(self, kind: type[Release]) -> None:
        """Raise ConfigurationError unless every field that depends on patients gets noise for which it is declared."""
        fields = {name: declaration for name, declaration in kind.declarations().items() if not declaration.public}
        if set(fields) != set(self.multipliers):
            raise ConfigurationError(
                f"the noise must name the release's fields ({', '.join(fields)}); got {', '.join(self.multipliers)}",
                where=kind.__name__,
                hint="State a noise multiplier for each of them.",
            )
        for name, declaration in fields.items():
            self._check_field(declaration, place(kind, name))

    def _check_field(self, declaration: Declaration, where: str) -> None:
        if declaration.sensitivity is None or declaration.bound is None:
            raise ConfigurationError(
                "a field under differential privacy must declare its sensitivity and bound; it does not",
                where=where,
                hint="Clip each patient's contribution and declare sensitivity= and bound=.",
            )
        if self.mechanism == "laplace" and declaration.norm != "l1":
            raise ConfigurationError(
                "the sensitivity for Laplace noise must be in the l1 norm; got l2",
                where=where,
                hint="Use Gaussian noise.",
            )


@dataclass(frozen=True)
class Planned:
    """One step of a plan: its noise, and the maximum number of its calls."""

    step: Step[Any, Any, Any]
    noise: Noise
    times: int = 1


@dataclass(frozen=True)
class Plan:
    """All releases of a fit that depend on patients' records, each with its noise.

    Parameters
    ----------
    releases : tuple of Planned
    delta : float
        Delta for which the study states its epsilon.
    unit : {"patient", "entry"}, default "patient"
        Privacy unit (who counts as one individual). Sensitivities are those of a patient; a guarantee for a patient
        holds for each of the patient's entries too.
    """

    releases: tuple[Planned, ...]
    delta: float = 1e-5
    unit: Unit = "patient"
    _by_step: dict[str, Planned] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_step", {planned.step.name: planned for planned in self.releases})
        if len(self._by_step) < len(self.releases) or any(planned.times < 1 for planned in self.releases):
            raise ConfigurationError(
                "a plan must name every step once, for at least one call; got another",
                where="plan",
                hint="State the number of calls in times=.",
            )
        for planned in self.releases:
            planned.noise.check(planned.step.releases)

    def noise_of(self, step: Step[Any, Any, Any], called: int) -> Noise | None:
        """Return the noise of a step after `called` calls; None for a step that does not depend on patients.

        Raises
        ------
        ConfigurationError
            The step depends on patients and is not planned, or called more often than planned.
        """
        planned = self._by_step.get(step.name)
        if planned is None and not step.releases.tells_of_patients():
            return None
        if planned is None or called >= planned.times:
            allowed = f"planned {planned.times} times" if planned else "not planned"
            raise ConfigurationError(
                f"a step under differential privacy must be in the plan of the fit; it is {allowed}",
                where=step.name,
                hint="Plan it before the fit.",
            )
        return planned.noise


@dataclass(frozen=True)
class PlanShown(Message):
    """A plan as the message that sites receive."""

    method: str = text("method that will run")
    steps: tuple[str, ...] = texts("steps that release something about patients")
    mechanisms: tuple[str, ...] = texts("law of each step's noise")
    times: NDArray[np.int64] = array("calls of each step, at most", ("s",), dtype="i8")
    fields: dict[str, tuple[str, ...]] = texts("fields of each step's release", keyed=True)
    multipliers: dict[str, NDArray[np.float64]] = arrays("noise scale of each field over its sensitivity", ("f",))

    @classmethod
    def of(cls, plan: Plan, part: type[SitePart]) -> PlanShown:
        """Return a plan as a message."""
        steps = {planned.step.name: planned for planned in plan.releases}
        return cls(
            part.method,
            tuple(steps),
            tuple(planned.noise.mechanism for planned in steps.values()),
            np.array([planned.times for planned in steps.values()], dtype=np.int64),
            {name: tuple(planned.noise.multipliers) for name, planned in steps.items()},
            {name: np.array(list(planned.noise.multipliers.values())) for name, planned in steps.items()},
        )

    def noises(self) -> list[tuple[Noise, int]]:
        """Return the noise and the number of calls of each step.

        Raises
        ------
        MessageError
            The fields of the message contradict each other.
        """
        try:
            names = [self.steps, *self.fields.values()]
            if any(len(set(group)) < len(group) for group in names) or np.any(self.times < 1):
                raise ValueError
            rows = zip(self.steps, self.mechanisms, self.times, strict=True)
            return [
                (Noise(mechanism, dict(zip(self.fields[name], self.multipliers[name].tolist(), strict=True))), int(n))  # type: ignore[arg-type]
                for name, mechanism, n in rows
            ]
        except (KeyError, ValueError):
            raise MessageError(
                "the fields of a plan must name each step and field once, with positive numbers; they do not",
                where="plan",
                hint="Use the same version of multicentre at the coordinator and at the sites.",
            ) from None


class PlanReview(SitePart):
    """Shows a site the planned releases of a fit, before anything is computed."""

    method: ClassVar[str] = "plan"
    holds_patients: ClassVar[bool] = False

    def __init__(self, site: str, review: Callable[[PlanShown], None]) -> None:
        super().__init__(site, None)
        self._review = review

    @step(releases=Acknowledgement, when="once")
    def review(self, request: PlanShown) -> Acknowledgement:
        """Check the plan against the site's policy and budget."""
        self._review(request)
        return Acknowledgement()
