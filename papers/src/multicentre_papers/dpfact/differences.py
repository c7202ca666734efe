"""In what this reproduction differs from the paper, and why."""

from __future__ import annotations

DIFFERENCES = {
    "Data": (
        "MIMIC-III may not be passed on, and the paper names neither its codes nor the five samples of DE-SynPUF. "
        "Planted events of the same sizes stand in, in which the phenotypes are known; the few patients "
        "of the MIMIC-III demo and of DE-SynPUF show that real codes go through, and no more."
    ),
    "Density": (
        "The printed density of MIMIC-III leaves fewer entries than patients, though every patient kept has one. The "
        "planted set has about ten entries per patient."
    ),
    "Loss": (
        "The paper's objective counts all cells, its algorithm visits only those above zero. The loss of those is "
        "near its minimum if the model is constant, so the published algorithm finds no phenotypes. "
        "DPFact here minimises the error over all cells, zeros included exactly; the published one is "
        "`DPFactAsPublished`."
    ),
    "Error": (
        "One error over the entries and one over all cells are two objectives: each method wins where it is measured "
        "by its own. Both are shown, next to a model that predicts zero and one that says the mean."
    ),
    "Authors' code": (
        "The released code divides the step of both feature factors by 10^8, so that they hardly move, and draws cells "
        "at random in place of entries. Its figures cannot be those of the algorithm as described; what is run here is "
        "the algorithm as described, with the corrections that follow."
    ),
    "Corrections": (
        "The proximal step carries the step size; the elastic term is one pull a pass in place of one a visited entry; "
        "the start is scaled to the mean entry; memberships and factors stay at or above zero, which the paper "
        "writes and its algorithm does not do; the coordinator's weight is bounded so that averaging is stable."
    ),
    "Privacy": (
        "The published guarantee does not hold (see the claimed privacy). Private fits here are for all of a patient's "
        "entries, with clipped sums and an exact accountant; the l2,1 norm has no place in them."
    ),
    "Memberships": (
        "The paper pools the memberships at one place for the logistic regression. Here they are fitted again at the "
        "site, from the phenotypes, for training and test patients alike, and the regression is federated."
    ),
    "CP-ALS": "In the learning curves without constraint, as in the paper; for the AUC held at or above zero.",
    "TRIP": (
        "Its penalty was tuned on planted events of MIMIC-III's size (300) and is scaled with the number of patients; "
        "the rank-one bias of the authors' code is left out."
    ),
    "Communication": (
        "Bytes are those of the messages to the same error over all cells, with start and agreement on codes separate. "
        "The paper's seconds and its number of epochs imply different numbers of rounds."
    ),
}
