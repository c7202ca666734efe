"""Traffic of a fit with the sites: its record, and a table of bytes by part of the fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sklearn.utils.validation import check_is_fitted

from multicentre.core.run_terms import Traffic
from multicentre.core.session import Session
from multicentre.estimator.base import FederatedEstimator

if TYPE_CHECKING:
    import pandas as pd

# Transfer rate that section 5.5.2 of the paper assumes for all sites together.
BYTES_PER_SECOND = 15e6

PARTS = {
    "once": "before the rounds",
    "every round": "rounds",
    "at the end": "at the end",
    "on request": "on request",
    "": "agreement on keys and noise",
}
FORMULA = "rounds, by the formula"


@dataclass(frozen=True)
class Sent:
    """Bytes of values in one part of a fit, without the headers of messages.

    Parameters
    ----------
    part : str
    calls : int
        Exchanges with the sites.
    to_sites, from_sites : int
        Bytes, all sites together.
    """

    part: str
    calls: int
    to_sites: int
    from_sites: int

    @property
    def seconds(self) -> float:
        """Seconds at 15 MB/s, all sites one after the other, as the paper counts them."""
        return (self.to_sites + self.from_sites) / BYTES_PER_SECOND


@dataclass(frozen=True)
class CommunicationTable:
    """Bytes of a fit by part, and bytes of its rounds by the formula.

    Parameters
    ----------
    n_sites : int
    n_rounds : int
    sent : tuple of Sent
        Measured in the process of the fit; a resumed run counts from its resumption.
    by_formula : Sent or None
        ``rounds x sites x bytes`` of the matrices that a round of the method exchanges. Measured bytes are larger by a
        few numbers per message, and by further requests of a round (`track_errors`).
    """

    n_sites: int
    n_rounds: int
    sent: tuple[Sent, ...]
    by_formula: Sent | None = None

    def to_frame(self) -> pd.DataFrame:
        """Return one row per part: calls, bytes to and from one site (mean) and all sites, seconds at 15 MB/s."""
        import pandas as pd

        total = Sent(
            "all", *(sum(getattr(one, name) for one in self.sent) for name in ("calls", "to_sites", "from_sites"))
        )
        rows = [*self.sent, total] if self.sent else []
        if self.by_formula is not None:
            rows.append(self.by_formula)
        return pd.DataFrame(
            [
                {
                    "part": row.part,
                    "calls": row.calls,
                    "bytes_to_site": row.to_sites / self.n_sites,
                    "bytes_from_site": row.from_sites / self.n_sites,
                    "bytes_to_sites": row.to_sites,
                    "bytes_from_sites": row.from_sites,
                    "seconds": row.seconds,
                }
                for row in rows
            ]
        ).set_index("part")


class FitWithTraffic(FederatedEstimator):
    """Base of the estimators that record the traffic of their fit.

    Attributes
    ----------
    n_sites_ : int
        Number of sites in the last round.
    n_rounds_sent_ : int
        Rounds of matrices that the fit exchanged with the sites, those of trials of starts included.
    traffic_ : Traffic or None
        Calls and bytes of the fit by step, summed over sites; None if not counted.
    """

    same_sites: ClassVar[bool] = False
    n_sites_: int = 0
    traffic_: Traffic | None = None

    @property
    def n_rounds_sent_(self) -> int:
        """Rounds of matrices that the fit exchanged with the sites."""
        return self.n_iter_

    def bytes_per_round(self) -> tuple[int, int] | None:
        """Return the bytes of matrices that one round sends to a site and receives from it, or None."""
        return None

    def _note_traffic(self, session: Session, before: Traffic) -> None:
        """Store the traffic of this fit, which is a part of the session's traffic."""
        self.n_sites_ = len(session.sites)
        self.traffic_ = traffic_since(before, session.traffic)


def communication_table(model: FitWithTraffic) -> CommunicationTable:
    """Return the bytes that the fit of a model sent to the sites and received from them.

    Parameters
    ----------
    model : DPFact
        Fitted.

    References
    ----------
    J. Ma, Q. Zhang, J. Lou, J. C. Ho, L. Xiong, X. Jiang (2019), Privacy-preserving tensor factorization for
    collaborative health data analysis, CIKM, section 5.5.2 and Table 3.
    """
    check_is_fitted(model, "history_")
    traffic = model.traffic_ or Traffic()
    when = {name: step.when for name, step in model.site_part.steps().items()}
    sent = tuple(
        traffic_of_part for key, part in PARTS.items() if (traffic_of_part := _part(traffic, when, key, part)).calls
    )
    formula = model.bytes_per_round()
    by_formula = None
    if formula is not None:
        to_site, from_site = (one * model.n_sites_ * model.n_rounds_sent_ for one in formula)
        by_formula = Sent(FORMULA, model.n_rounds_sent_, to_site, from_site)
    return CommunicationTable(model.n_sites_, model.n_iter_, sent, by_formula)


def traffic_since(before: Traffic, after: Traffic) -> Traffic:
    """Return the calls and bytes between two readings of a federation's traffic.

    Examples
    --------
    >>> before, after = Traffic(), Traffic()
    >>> before.add("begin", 8, 0)
    >>> after.add("begin", 8, 0)
    >>> after.add("sum_products", 80, 160)
    >>> traffic_since(before, after)
    Traffic(calls={'sum_products': 1}, bytes_to_sites={'sum_products': 80}, bytes_from_sites={'sum_products': 160})
    """
    steps = [name for name, calls in after.calls.items() if calls > before.calls.get(name, 0)]
    names = ("calls", "bytes_to_sites", "bytes_from_sites")
    return Traffic(
        *({step: getattr(after, name)[step] - getattr(before, name).get(step, 0) for step in steps} for name in names)
    )


def _part(traffic: Traffic, when: Mapping[str, str], key: str, part: str) -> Sent:
    steps = [step for step in traffic.calls if when.get(step, "") == key]
    return Sent(
        part,
        sum(traffic.calls[step] for step in steps),
        sum(traffic.bytes_to_sites[step] for step in steps),
        sum(traffic.bytes_from_sites[step] for step in steps),
    )
