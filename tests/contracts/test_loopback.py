"""The same numbers over real processes: a coordinator, its proxy where nginx is installed, and agents of sites."""

import numpy as np
import pytest

import multicentre as mc
from support.method_cases import CASES, COMPARED, NEED_TORCH

pytest.importorskip("flwr", reason="flwr is not installed")

from support.loopback import Renamed, connected_agents

# A call over real processes takes half a second, and only the content of messages differs: one method per site part of
# the package with masks, and some without. What others send is taken through the wire in test_remote.py.
OWN = {name: case for name, case in reversed(CASES.items()) if name not in COMPARED | NEED_TORCH}
MASKED = {
    getattr(case.make(), "site_part", None): name for name, case in OWN.items() if "published" not in name
}.values()
UNMASKED = ("toy-mean", "dpfact", "fed-msgl")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*site's lists:multicentre.errors.DisclosureWarning"),
    pytest.mark.filterwarnings("ignore:DPFactAsPublished minimises:UserWarning"),
]


@pytest.fixture(scope="module")
def carrier(tmp_path_factory):
    """Carry letters to as many agents as the largest case has sites."""
    most = max(len(CASES[name].sites()) for name in (*MASKED, *UNMASKED))
    with connected_agents(tmp_path_factory.mktemp("loopback"), most) as bridge:
        yield bridge


@pytest.mark.parametrize(
    ("name", "secure"),
    [*((name, True) for name in MASKED), *((name, False) for name in UNMASKED)],
    ids=lambda value: {True: "masked", False: "unmasked"}.get(value, value),
)
def test_real_processes_change_no_bit(name, secure, carrier):
    case = CASES[name]
    with mc.Federation.in_process(case.sites(), policy=case.policy, secure_sum=secure, study=name) as federation:
        numbers = case.numbers(case.make().fit(federation))
    with mc.Federation.over(Renamed(carrier, case.sites()), study=name, secure_sum=secure) as federation:
        others = case.numbers(case.make().fit(federation))
    assert numbers.keys() == others.keys()
    for key, value in numbers.items():
        assert np.array_equal(value, others[key]), key
