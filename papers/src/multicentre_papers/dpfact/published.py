"""Figures of Ma, Zhang, Lou, Ho, Xiong and Jiang (CIKM 2019), as printed; their data are not those of a reproduction.

Figures 2 to 4 are drawn without numbers, so only the orderings in the text can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

MIMIC, CMS, SYNTHETIC = "MIMIC-III", "CMS", "Synthetic"
# Transfer rate, rank and number of sites of the paper's communication experiments (section 5.5.2).
BYTES_PER_SECOND = 15e6
RANK, N_SITES = 50, 5
GAMMA, DELTA, RHO = 5.0, 1e-4, 1e-3
"""Section 5.4: elastic term; delta and the rho of each factor and epoch."""

SIZES = {MIMIC: (40_662, 202, 316), CMS: (82_307, 2532, 10_983), SYNTHETIC: (5000, 300, 800)}
"""Section 5.1: patients, procedures, diagnoses."""

DENSITY = {MIMIC: 4.0382e-6, CMS: 3.1678e-7, SYNTHETIC: 1e-5}
"""Section 5.1: share of the cells that are not zero."""

LEARNING_RATE = {MIMIC: 1e-2, CMS: 1e-3, SYNTHETIC: 1e-2}
MU = {MIMIC: (1.0, 1.8, 3.2, 1.8, 1.5, 0.6), CMS: (2.0,), SYNTHETIC: (0.5,)}
"""Section 5.4.2: weight of the group lasso, of MIMIC-III by unit (TSICU, SICU, MICU, CSRU, CCU, NICU)."""

EPSILON = {MIMIC: 1.2, CMS: 1.9, SYNTHETIC: 1.7}
"""Section 5.4.4: claimed at `DELTA`."""

SECONDS_OF_TRIP = {MIMIC: 175.26, CMS: 183.72, SYNTHETIC: 9.77}
SECONDS_OF_DPFACT = {MIMIC: 93.62, CMS: 114.42, SYNTHETIC: 7.75}
"""Table 3, communication at 15 MB/s."""

SECONDS_BY_SITES = {
    1: {MIMIC: 18.73, CMS: 22.89, SYNTHETIC: 1.55},
    5: {MIMIC: 93.62, CMS: 114.42, SYNTHETIC: 7.75},
    10: {MIMIC: 189.83, CMS: 228.83, SYNTHETIC: 15.50},
}
"""Tables 2 and 8, DPFact by number of sites."""

CP_ALS, TRIP, DPFACT, WITHOUT_L21, WITHOUT_DP = "CP-ALS", "TRIP", "DPFact", "DPFact w/o l2,1", "DPFact w/o DP"
AUC: dict[int, dict[str, float]] = {
    rank: dict(zip((CP_ALS, TRIP, DPFACT, WITHOUT_L21, WITHOUT_DP), row, strict=True))
    for rank, row in {
        10: (0.7516, 0.7130, 0.7319, 0.5189, 0.7401),
        20: (0.7573, 0.7596, 0.7751, 0.6886, 0.7763),
        30: (0.7488, 0.7644, 0.7679, 0.6977, 0.7705),
        40: (0.7603, 0.7574, 0.7737, 0.7137, 0.7756),
        50: (0.7643, 0.7633, 0.7759, 0.7212, 0.7790),
        60: (0.7648, 0.7588, 0.7758, 0.7312, 0.7763),
    }.items()
}
"""Table 4: area under the curve of in-hospital mortality, MIMIC-III."""


@dataclass(frozen=True)
class PublishedPhenotype:
    """One line of table 5 or 7: log odds of death, p-value as printed, weight, per cent of patients with any of it."""

    name: str
    coefficient: float
    p_value: str
    weight: float
    prevalence_per_cent: float


TABLE_5 = (
    PublishedPhenotype("25: Congenital heart defect", -2.1865, "0.005", 198, 34.32),
    PublishedPhenotype("29: Anemia", 3.5047, "<0.001", 77, 13.22),
    PublishedPhenotype("30: Acute kidney injury", 5.8806, "0.001", 68, 23.38),
    PublishedPhenotype("34: Pneumonia", -5.1050, "<0.001", 37, 37.58),
    PublishedPhenotype("35: Respiratory failure", -0.9141, "<0.001", 85, 24.40),
)
"""Table 5: phenotypes of the neonatal unit."""

TABLE_7 = (
    PublishedPhenotype("3: Hypertension", -1.53, "0.001", 249, 20.57),
    PublishedPhenotype("25: Heart failure", -6.56, "<0.001", 278, 16.40),
    PublishedPhenotype("30: Acute kidney injury", 0.46, "0.001", 203, 26.35),
    PublishedPhenotype("42: Gastritis and gastroduodenitis", -2.24, "0.001", 187, 22.88),
    PublishedPhenotype("47: Cardiac surgery", -2.94, "<0.001", 223, 16.55),
    PublishedPhenotype("50: Chronic ischemic heart disease", 1.38, "0.001", 207, 27.45),
)
"""Table 7: the named ones of the phenotypes of all units."""
