from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store.store import check
from tests.scenarios.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Makes worlds; at the end every one of them must rebuild to what it kept."""
    made: list[World] = []

    def make(**facts: Any) -> World:
        made.append(World(tmp_path / str(len(made)), **facts))
        return made[-1]

    yield make
    for one in made:
        one.store.close()
        assert check(one.path) == []
