"""Fed-mv-PPCA reconstructs held-out patients better than both auto-encoders do after 100 rounds of 15 steps."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.datasets import cross_validation_splits, simulate_sd, split_scenario
from multicentre_papers import baselines

pytest.importorskip("torch", reason="torch is not installed (extra: deep)")


def in_unit_range(labelled):
    """Columns brought to 0 ... 1 over all patients, as for Table 2 of Balelli et al. (IPMI 2021)."""
    arrays = {view: labelled.data.array(view) for view in labelled.data.views}
    ranged = {view: (x - x.min(axis=0)) / np.ptp(x, axis=0) for view, x in arrays.items()}
    return dataclasses.replace(labelled, data=MultiViewData(ranged))


@pytest.mark.slow
def test_fed_mv_ppca_is_ahead_of_the_auto_encoders_by_a_twelfth():
    training, held_out = {}, []
    for name, centre in split_scenario(in_unit_range(simulate_sd(0)), "IID", 3, random_state=100).items():
        seen, unseen = cross_validation_splits(centre, 3, random_state=1)[0]
        training[name] = centre.data.take(seen)
        held_out.append(centre.data.take(unseen))
    errors = {}
    for model in (
        mc.multiview.FedMvPPCA(5),
        baselines.FedVAE(5, scale="none"),
        baselines.FedMCVAE(5, scale="none"),
    ):
        model.fit(mc.Federation.in_process(training))
        rebuilt = [(model.reconstruct(data)[view], data.array(view)) for data in held_out for view in data.views]
        errors[type(model).__name__] = float(np.concatenate([np.abs(one - x).ravel() for one, x in rebuilt]).mean())
    print({name: round(error, 4) for name, error in errors.items()})
    assert errors["FedMvPPCA"] <= 0.92 * min(errors["FedVAE"], errors["FedMCVAE"])
