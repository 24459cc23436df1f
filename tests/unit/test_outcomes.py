from __future__ import annotations

import pytest

from bot.model import ChainClass, Link, Origin
from bot.outcomes import chain_class

TABLE: list[tuple[list[Origin | None], ChainClass]] = [
    ([], "none"),
    (["auto"], "automated"),
    (["auto", "auto"], "automated"),
    (["approved"], "assisted"),
    (["auto", "approved"], "assisted"),
    (["command"], "manual"),
    (["command", "external"], "manual"),
    (["scheduler", "scheduler"], "scheduler"),
    (["in_job"], "in_job"),
    (["auto", "external"], "takeover"),
    (["approved", "command", "auto"], "takeover"),
    (["scheduler", "auto", "command"], "takeover"),
    (["external", "auto"], "mixed"),
    (["scheduler", "auto"], "mixed"),
    (["unattributed"], "mixed"),
    (["auto", None], "mixed"),
]


@pytest.mark.parametrize(("origins", "expected"), TABLE, ids=lambda v: str(v))
def test_a_chain_has_the_class_of_who_recovered(origins: list[Origin | None], expected: ChainClass) -> None:
    assert chain_class([Link(f"1#{i}", i, origin) for i, origin in enumerate(origins)]) == expected
