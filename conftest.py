"""Collection rules, Hypothesis profiles and common fixtures of the tests of all distributions and of doctests."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

# Location of the data sets that the package does not ship.
_SIBLING = Path(__file__).resolve().parent.parent / "shared" / "data"
if _SIBLING.is_dir():
    os.environ.setdefault("MULTICENTRE_DATA", str(_SIBLING))

_NEED = {"torch": "papers/src/multicentre_papers/baselines/vae/*", "flwr": "sites/src/multicentre_sites/flower/*"}
collect_ignore_glob = [files for library, files in _NEED.items() if not find_spec(library)]

# No test fails because a machine is slow, busy or unlucky: there is no deadline, and the quick profile always draws the
# same examples. The full one (--hypothesis-profile=full) draws others on every machine but in continuous integration.
# A test that needs another number of examples takes support.examples, so that both profiles scale it.
_COMMON = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _COMMON, max_examples=20, derandomize=True)
settings.register_profile("full", _COMMON, max_examples=100, derandomize="CI" in os.environ)
settings.load_profile("quick")

# The contract of methods, for examples/own_method.
pytest_plugins = ["multicentre.testing.plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs tests which are dealt out."""
    parser.addoption("--every-combination", action="store_true", help="run every test of a contract marked dealt(n)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one in n of the slow tests marked dealt(n), always the same: methods times circumstances are thousands."""
    if config.getoption("--every-combination"):
        return
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_left_out(item)]


def _is_left_out(item: pytest.Item) -> bool:
    dealt = item.get_closest_marker("dealt")
    if dealt is None or item.get_closest_marker("slow") is None:
        return False
    return crc32(item.nodeid.encode()) % int(dealt.args[0]) != 0


@pytest.fixture(autouse=True, scope="session")
def _without_fsync() -> Iterator[None]:
    """Skip fsync: it protects from power cuts alone, and takes most of the time of some tests on a slow disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def seeded_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the noise of differential privacy from a seed, where a test is not about the noise itself."""
    from support.noise import seed_noise

    seed_noise(monkeypatch)
