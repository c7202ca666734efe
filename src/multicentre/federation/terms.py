"""What holds for every call of a study, and what has crossed the boundary so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from multicentre.federation.errors import ConfigurationError

Quorum = Literal["all"] | int
RefusingSites = Literal["stop", "leave_out"]
REFUSING_SITES: tuple[str, ...] = get_args(RefusingSites)


@dataclass
class Traffic:
    """What crossed the boundary so far: calls and bytes of values, by step, sites taken together."""

    calls: dict[str, int] = field(default_factory=dict)
    bytes_to_sites: dict[str, int] = field(default_factory=dict)
    bytes_from_sites: dict[str, int] = field(default_factory=dict)

    def add(self, step: str, sent: int, received: int) -> None:
        """Count one exchange."""
        self.calls[step] = self.calls.get(step, 0) + 1
        self.bytes_to_sites[step] = self.bytes_to_sites.get(step, 0) + sent
        self.bytes_from_sites[step] = self.bytes_from_sites.get(step, 0) + received


@dataclass(frozen=True)
class Terms:
    """What holds for every call of a study.

    Parameters
    ----------
    study : str
        Name of the study, written to every ledger.
    quorum : "all" or int
        How many sites must answer for a round to count.
    time_limit_s : float, optional
        Seconds that a site may take for one step; None waits for ever.
    sites_per_patient : int
        At how many sites one patient may have records; differential privacy adds up over them.
    refusing_sites : {"stop", "leave_out"}
        Whether a refusal by a site's policy or guard ends a fit, or the fit is made without the site. With
        ``quorum="all"`` the latter means all sites that do not refuse.
    counted : {"patients", "records"}
        What minimum counts and noise are about: patients, or records where some site cannot tell whose they are.
    agreed : str
        Hash of the study's terms; checkpoints of a run under other terms are refused.
    """

    study: str = "study"
    quorum: Quorum = "all"
    time_limit_s: float | None = None
    sites_per_patient: int = 1
    refusing_sites: RefusingSites = "stop"
    counted: Literal["patients", "records"] = "patients"
    agreed: str = ""

    def __post_init__(self) -> None:
        if self.quorum != "all" and type(self.quorum) is not int:
            raise ConfigurationError(
                f"a quorum of {self.quorum!r} cannot be understood", where="quorum", mend='Use "all" or a whole number.'
            )
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise ConfigurationError("a time limit must be above 0 seconds", where="time_limit_s")
        if type(self.sites_per_patient) is not int or self.sites_per_patient < 1:
            raise ConfigurationError("a whole number of at least 1 is needed", where="sites_per_patient")
        if self.refusing_sites not in REFUSING_SITES:
            raise ConfigurationError(
                f"refusing_sites must be one of {', '.join(map(repr, REFUSING_SITES))}; got {self.refusing_sites!r}",
                where="refusing_sites",
            )

    def needed(self, n_sites: int) -> int:
        """Return how many of `n_sites` must answer."""
        return n_sites if self.quorum == "all" else int(self.quorum)

    def needed_of_willing(self, n_sites: int, *, masked: bool) -> int:
        """Return how many of `n_sites` must remain after those that refuse were left out.

        With ``quorum="all"`` these are all that do not refuse; a masked sum needs two.
        """
        if self.refusing_sites == "leave_out" and self.quorum == "all":
            return 2 if masked else 1
        return self.needed(n_sites)
