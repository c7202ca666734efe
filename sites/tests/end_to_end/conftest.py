"""Runs over real processes are short: they end at max_iter, of which the comparison in one process warns."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:the rounds ended at max_iter"))
