"""What FedDeepSurv asks of a site, what a site answers with, and what either remembers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, count, number, text
from multicentre.federation.steps import Release
from multicentre.survival.agreement.messages import PATIENTS, Agreed

Floats = NDArray[np.float64]
LARGEST_WEIGHT = 2.0**12
LARGEST_LIKELIHOOD = 2.0**12
LARGEST_RATIO = 20.0
LARGEST_RISK = 2.0**30


@dataclass(frozen=True)
class Parts(Message):
    """How a site splits its patients."""

    validation: float = number("share of the patients on whom networks are judged and not trained")
    seed: int = count("seed of the study")


@dataclass(frozen=True)
class Proposal(Message):
    """A network on standardised columns."""

    hidden: NDArray[np.int64] = array("widths of the hidden layers", ("l",), dtype="i8")
    norm: str = text("normalisation: none or layer")
    parameters: Floats = array("numbers of all layers", ("p",))


@dataclass(frozen=True)
class Task(Proposal):
    """A network, and how it is trained for one round."""

    dropout: float = number("share of values that are left out in training")
    learning_rate: float = number("step length of AdamW")
    weight_decay: float = number("weight decay of AdamW")
    batch_size: int = count("patients of a batch, at most")
    n_epochs: int = count("passes over the patients")
    proximal: float = number("weight of the squared distance to the network that was sent")
    seed: int = count("seed of the study")
    round_number: int = count("number of the round")


@dataclass(frozen=True)
class Trained(Release):
    """A site's trained network, weighted with its patients, and how well the one that was sent did before."""

    parameters: Floats = array("numbers of all layers, times the share", ("p",), bound=LARGEST_WEIGHT)
    share: float = number("patients of the training, over all patients of all sites", bound=1.0)
    log_likelihood: float = number(
        "log partial likelihood of the network that was sent, over events of all sites", bound=LARGEST_LIKELIHOOD
    )
    n_events: float = number("events that it was summed over", unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class RiskSums(Release):
    """What a site adds to the baseline hazard."""

    events: Floats = array("patients with an event, by bin of the grid", ("K",), unit="patients", bound=PATIENTS)
    at_risk: Floats = array(
        "sum of hazard ratios of those at risk, over patients of all sites", ("K",), bound=LARGEST_RISK
    )


@dataclass(frozen=True)
class Memory(Agreed):
    """What a site remembers: the agreement, and who is held out."""

    held_out: NDArray[np.uint8] = array("whether a patient is held out; nobody before the split", ("n",), dtype="u1")
    asked: str = text("the share and seed of the split; empty before it")


@dataclass(frozen=True)
class Progress(Message):
    """What the coordinator carries from round to round."""

    parameters: Floats = array("the average after the round", ("p",))
    best: Floats = array("the network that did best on the held-out patients", ("p",))
    score: float = number("its log partial likelihood per event; minus infinity before the first", finite=False)
    best_round: int = count("round before which it was judged")
