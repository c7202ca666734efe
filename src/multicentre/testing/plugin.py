"""pytest plugin for the contract tests of methods: ``pytest_plugins = ["multicentre.testing.plugin"]``.

The plugin collects subclasses of :class:`~multicentre.testing.MethodContract` under any name, except those with an
abstract method, and makes failed assertions of the contract show the values that they compare.
"""

from __future__ import annotations

import inspect
import sys

import pytest

CONTRACT = "multicentre.testing.contract"

pytest.register_assert_rewrite(CONTRACT)


def pytest_pycollect_makeitem(
    collector: pytest.Module, name: str, obj: object
) -> pytest.Class | list[pytest.Item] | None:
    """Collect a class of contract tests; leave everything else to pytest."""
    # A test file that defines contracts has imported the module; no other file needs the import.
    contract = sys.modules.get(CONTRACT)
    if contract is None or not (inspect.isclass(obj) and issubclass(obj, contract.MethodContract)):
        return None
    if inspect.isabstract(obj):
        return []
    collected: pytest.Class = pytest.Class.from_parent(collector, name=name, obj=obj)
    return collected
