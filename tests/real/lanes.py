"""One lane of several (`tests/run --lanes 3`): each is a pytest of its own, in a world of its own, and runs the tests
that no other lane has taken. The real parts mostly wait and the other tests compute, so the last lane begins at the
other end of the list."""

import os
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lane, _, lanes = os.environ["XIDBOT_LANE"].partition("/")
    if lane == lanes:
        place = {_module(item): number for number, item in enumerate(items)}
        items.sort(key=lambda item: -place[_module(item)])  # a module keeps its own order


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """pytest's own loop over what is taken here. A lane that stops early fails, so nothing taken goes missing."""
    if session.testsfailed or session.config.option.collectonly:
        return None
    folder = Path(os.environ["XIDBOT_TAKEN"])
    mine = _taken(session.items, folder)
    item = next(mine, None)
    while item:
        following = next(mine, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    (folder / f"lane-{os.environ['XIDBOT_LANE'].partition('/')[0]}").touch()  # tests/run looks for it
    return True


def _taken(items: list[pytest.Item], folder: Path) -> Iterator[pytest.Item]:
    mine: dict[str, bool] = {}
    for item in items:
        unit = _unit(item)
        if unit not in mine:
            mine[unit] = _take(folder / sha256(unit.encode()).hexdigest())
        if mine[unit]:
            yield item


def _unit(item: pytest.Item) -> str:
    """A test by itself, or all of a module that share what is made once for the module."""
    made: dict[str, tuple[pytest.FixtureDef[object], ...]] = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    once = any(fixture[-1].scope in ("module", "class") for fixture in made.values())
    return _module(item) if once else re.sub(r"0x[0-9a-f]+", "0x", item.nodeid)  # an address is another in each lane


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _take(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
