"""Fixtures and rules for all tests."""

import os

import pytest

from tests.real import parts


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `real` are skipped where their parts are missing, unless XIDBOT_REAL=required says that
    this machine must have them."""
    real = [item for item in items if item.get_closest_marker("real")]
    if not real or not parts.missing():
        return
    reason = "; ".join(parts.missing())
    if os.environ.get("XIDBOT_REAL") == "required":
        raise pytest.UsageError(f"XIDBOT_REAL=required, but the real parts cannot run here: {reason}")
    for item in real:
        item.add_marker(pytest.mark.skip(reason=f"real parts: {reason}"))
