"""Metrics printed in tables 1 and 2 of the paper."""

from __future__ import annotations

from dataclasses import dataclass

METABRIC, SUPPORT = "METABRIC", "SUPPORT"
CLIENTS = (1, 4, 8)


@dataclass(frozen=True)
class Printed:
    """One row of tables 1 and 2.

    Parameters
    ----------
    method : str
        Name as printed.
    concordance, ibs : dict of str to tuple of float
        Values by data set, for 1, 4 and 8 clients.
    """

    method: str
    concordance: dict[str, tuple[float, float, float]]
    ibs: dict[str, tuple[float, float, float]]

    def cell(self, sample: str, n_clients: int) -> tuple[float, float]:
        """Return concordance and integrated Brier score."""
        place = CLIENTS.index(n_clients)
        return self.concordance[sample][place], self.ibs[sample][place]


TABLES = (
    Printed(
        "FedSurF",
        {METABRIC: (0.622, 0.637, 0.629), SUPPORT: (0.824, 0.834, 0.829)},
        {METABRIC: (0.175, 0.171, 0.171), SUPPORT: (0.179, 0.180, 0.179)},
    ),
    Printed(
        "FedSurF-IBS",
        {METABRIC: (0.622, 0.639, 0.627), SUPPORT: (0.824, 0.826, 0.826)},
        {METABRIC: (0.175, 0.170, 0.170), SUPPORT: (0.179, 0.156, 0.157)},
    ),
    Printed(
        "FedAvg (PyCox)",
        {METABRIC: (0.630, 0.643, 0.628), SUPPORT: (0.844, 0.841, 0.844)},
        {METABRIC: (0.168, 0.168, 0.169), SUPPORT: (0.127, 0.128, 0.129)},
    ),
    Printed(
        "RSF",
        {METABRIC: (0.630, 0.645, 0.642), SUPPORT: (0.791, 0.810, 0.780)},
        {METABRIC: (0.164, 0.167, 0.171), SUPPORT: (0.138, 0.140, 0.139)},
    ),
    Printed(
        "FedSurvBoost CoxPH",
        {METABRIC: (0.646, 0.653, 0.656), SUPPORT: (0.831, 0.835, 0.838)},
        {METABRIC: (0.152, 0.156, 0.155), SUPPORT: (0.140, 0.142, 0.140)},
    ),
    Printed(
        "FedSurvBoost RST",
        {METABRIC: (0.631, 0.639, 0.636), SUPPORT: (0.820, 0.831, 0.830)},
        {METABRIC: (0.169, 0.174, 0.171), SUPPORT: (0.130, 0.132, 0.136)},
    ),
    Printed(
        "FedSurvBoost PyCox",
        {METABRIC: (0.650, 0.659, 0.657), SUPPORT: (0.871, 0.875, 0.874)},
        {METABRIC: (0.165, 0.170, 0.169), SUPPORT: (0.124, 0.119, 0.124)},
    ),
)
