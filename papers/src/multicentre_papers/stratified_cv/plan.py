"""Size of a run: simulations, sets of parameters, shares of duplicates and boosting rounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Size of a run.

    Parameters
    ----------
    n_records, n_duplicates : int
        Number of original records of a simulation, and of copies.
    n_rounds : int
        Number of boosting rounds, a multiple of 8.
    n_simulations : int
        Number of simulations of Figure 3.
    n_sets : int
        Number of sets of parameters of Figure 4.
    n_pilot_sets : int
        Number of these sets with a pilot at the hospitals.
    n_pilot_rounds : int
        Number of boosting rounds of a pilot.
    alarm_duplicates : tuple of int
        Numbers of copies in the table of alarms.
    n_alarms : int
        Number of simulations per number of copies.
    n_repeats : int
        Number of repeats of cross-validation on real records.
    n_federated_rounds : int
        Number of boosting rounds of the federated run.
    """

    n_records: int
    n_duplicates: int
    n_rounds: int
    n_simulations: int
    n_sets: int
    n_pilot_sets: int
    n_pilot_rounds: int
    alarm_duplicates: tuple[int, ...]
    n_alarms: int
    n_repeats: int
    n_federated_rounds: int

    def describe(self) -> str:
        """Return the size of the run as text."""
        return (
            f"{self.n_records} records and {self.n_duplicates} duplicates at five hospitals, five folds, "
            f"{self.n_rounds} rounds of boosting; {self.n_simulations} simulations (Figure 3), {self.n_sets} sets of "
            f"parameters (Figure 4), a pilot in {self.n_pilot_sets} of them; {self.n_alarms} simulations per "
            f"share of duplicates (alarm); {self.n_repeats} repeats on real records."
        )


FULL = Plan(
    n_records=10_000,
    n_duplicates=2_000,
    n_rounds=200,
    n_simulations=10,
    n_sets=16,
    n_pilot_sets=10,
    n_pilot_rounds=50,
    alarm_duplicates=(0, 204, 504, 2_000),
    n_alarms=10,
    n_repeats=10,
    n_federated_rounds=50,
)
QUICK = Plan(
    n_records=10_000,
    n_duplicates=2_000,
    n_rounds=200,
    n_simulations=3,
    n_sets=3,
    n_pilot_sets=2,
    n_pilot_rounds=50,
    alarm_duplicates=(0, 2_000),
    n_alarms=2,
    n_repeats=5,
    n_federated_rounds=10,
)
