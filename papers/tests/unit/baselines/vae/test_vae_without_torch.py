"""What works, and what is said, where torch is not installed."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.errors import MissingExtra
from multicentre_papers.baselines.vae import FedMCVAE, FedVAE


@pytest.fixture
def no_torch(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))


def test_importing_and_constructing_load_no_torch():
    load = "from multicentre_papers.baselines.vae import FedMCVAE; FedMCVAE(2)"
    code = f"import sys; {load}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.usefixtures("no_torch")
@pytest.mark.parametrize("estimator", [FedVAE, FedMCVAE])
def test_fit_names_the_extra_before_anything_is_asked(estimator):
    data = MultiViewData({"blood": np.random.default_rng(0).standard_normal((20, 3))})
    federation = mc.Federation.in_process({"lyon": data})
    with pytest.raises(MissingExtra, match=r"pip install 'multicentre\[deep\]'"):
        estimator(1).fit(federation)
    assert not federation.traffic.calls
