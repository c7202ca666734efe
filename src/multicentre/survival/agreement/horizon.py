"""Horizon of a fit: what lies after it, and the sentence on it that results state."""

from __future__ import annotations

from typing import Any, ClassVar

from multicentre.core.published_counts import MIN_PUBLISHED, count_text, published
from multicentre.estimator.model_in_force import HasModelInForce
from multicentre.estimator.presentation import number_text
from multicentre.estimator.saved import Saved, SavedAttributes
from multicentre.survival.agreement.messages import LARGEST, AfterHorizon

_COUNT = Saved(published, optional=True)


class HasHorizon(HasModelInForce):
    """Mixin of estimators whose follow-up may end at a horizon, which counts what lies after it.

    Attributes
    ----------
    n_events_after_horizon_ : int or None
        Events after the horizon, which do not count; None for a small number of a loaded model.
    n_patients_after_horizon_ : int or None
        Patients followed beyond the horizon, whose follow-up is cut there.
    horizon_line_ : str
        The sentence on these that results state; empty without events after the horizon.
    """

    saved_horizon: ClassVar[SavedAttributes] = {"n_events_after_horizon_": _COUNT, "n_patients_after_horizon_": _COUNT}
    least_published: int = MIN_PUBLISHED
    horizon: float | None
    n_events_after_horizon_: int | None
    n_patients_after_horizon_: int | None

    @property
    def horizon_line_(self) -> str:
        """One sentence on the events after the horizon; empty if there are none."""
        if getattr(self, "n_events_after_horizon_", 0) == 0:
            return ""
        events, patients = (
            count_text(n, self.least_published) for n in (self.n_events_after_horizon_, self.n_patients_after_horizon_)
        )
        last = self._last_time()
        return (
            f"{events} event{'s' * (events != '1')} after the horizon{f' ({last})' if last else ''} "
            f"{self._effect_of_horizon()}; follow-up of {patients} patient{'s' * (patients != '1')} is cut there."
        )

    def describe_model(self) -> str:
        """Return the model in force in one sentence, and a second one if events after the horizon do not count."""
        return f"{super().describe_model()} {self.horizon_line_}".rstrip()

    def _count_after(self, after: AfterHorizon, *, any_cause: bool = False) -> None:
        """Set the counts of an agreement, of events of interest or of events of any cause."""
        self.n_events_after_horizon_ = round(after.n_events + (after.n_others if any_cause else 0.0))
        self.n_patients_after_horizon_ = round(after.n_patients)

    def _effect_of_horizon(self) -> str:
        return "do not count"

    def _last_time(self) -> str:
        """Return the end of follow-up with its unit; empty before the fit, or if there is none."""
        agreed: Any = getattr(self, "agreed_", None)
        has_end = agreed is not None and agreed.ends < LARGEST
        return f"{number_text(float(agreed.ends))} {agreed.unit}".strip() if has_end else ""

    def _stating_horizon(self, answer: str) -> str:
        """Return an answer that ends with the sentence on the horizon."""
        return f"{answer} {self.horizon_line_}".rstrip()


def horizon_in_force(model: Any) -> str:
    """Return the end of follow-up of a model: its parameter, or the one that the fit determined; empty without one."""
    if not _has_horizon(model):
        return ""
    last = model._last_time() or ("" if model.horizon is None else f"{model.horizon:g}")
    if model.horizon is not None or (getattr(model, "times", None) is not None and not isinstance(model.times, str)):
        return f"follow-up to {last}" if last else ""
    chosen = "the time by which 95 % of the follow-ups ended"
    return f"follow-up to {last}, {chosen}" if last else f"follow-up to {chosen}"


def _has_horizon(model: Any) -> bool:
    by_site = getattr(model, "stratify_by_site", False) or getattr(model, "times", None) in ("stratified", "exact")
    return model.horizon is not None or not by_site
