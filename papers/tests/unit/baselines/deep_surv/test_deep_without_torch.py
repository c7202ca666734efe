"""What works, and what is said, where torch is not installed."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import MissingExtra
from multicentre.survival.agreement.messages import Patients, Prepared
from multicentre.survival.fitted_models.network import Network
from multicentre.survival.learners.networks import NetworkSettings, fit_network
from multicentre_papers.baselines.deep_surv import FedDeepSurv

DATA = mc.data.SurvivalData(np.zeros((20, 1)), np.ones(20), np.ones(20))


@pytest.fixture
def no_torch(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))


def test_importing_constructing_and_predicting_load_no_torch():
    code = """if True:
        import sys, numpy as np
        from multicentre_papers.baselines.deep_surv import FedDeepSurv
        from multicentre.survival.fitted_models.network import Network
        FedDeepSurv((2,))
        one = np.ones(1)
        Network(one, one, one, np.zeros(0, dtype=np.int32), 0, one, one).valid(1).survival(np.zeros((1, 1)))
        sys.exit('torch' in sys.modules)"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.usefixtures("no_torch")
def test_fit_names_the_extra_before_anything_is_asked():
    federation = mc.Federation.in_process({"lyon": DATA})
    with pytest.raises(MissingExtra, match=r"pip install 'multicentre\[deep\]'"):
        FedDeepSurv().fit(federation)
    assert not federation.traffic.calls


@pytest.mark.usefixtures("no_torch")
def test_the_learner_names_the_extra():
    one = np.ones(1)
    agreed = Prepared(("x0",), "", 1, 20.0, 20.0, one, one, one, np.zeros(0), np.zeros(2, dtype=np.int64))
    with pytest.raises(MissingExtra, match=r"pip install 'multicentre\[deep\]'"):
        fit_network(Patients(DATA, agreed), np.ones(20), NetworkSettings(), 0)
    assert Network.empty().is_empty
