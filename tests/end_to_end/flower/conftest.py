"""Runs over real processes are cut short on purpose: they end at max_iter, which the comparison in one process warns of."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:the rounds ended at max_iter"))
