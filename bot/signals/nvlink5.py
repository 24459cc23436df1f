"""What the registers of NVLink 5's Xids (144-150) ask for. The code alone says nothing: 145 stands for a counter that
may be ignored as well as for a GPU that must be reset."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated

from pydantic import BeforeValidator, Field, RootModel

from bot import yamlfile
from bot.policy import XidAction, shipped
from bot.yamlfile import Strict

_Number = Annotated[int, BeforeValidator(lambda text: int(text, 0))]


class _Unit(Strict):
    """One row of the table; see there."""

    names: tuple[str, ...]
    none: tuple[_Number, ...] = ()
    restart_app: tuple[_Number, ...] = ()
    reset: tuple[_Number, ...] = ()
    fatal: tuple[_Number, ...] = ()
    always: XidAction | None = Field(default=None, alias="any")
    reason: bool = False
    exact: bool = False


class _Table(RootModel[dict[str, _Unit]]):
    pass


@cache
def _units() -> Mapping[str, _Unit]:
    """Raises ConfigError when the file is broken."""
    rows = yamlfile.validate(_Table, shipped("bot.signals", "nvlink5.yaml")).root
    return {name: unit for unit in rows.values() for name in unit.names}


def decoded(unit: str, fatal: bool, registers: tuple[int, ...]) -> XidAction | None:
    """unit: as the line names it (`A/B`: the newer drivers' name comes last). registers: of the line, the first two
    count. None: the table does not tell, and the code decides."""
    row = _units().get(unit.rpartition("/")[2])
    if row is None or row.always:
        return row.always if row else None
    if len(registers) < 2:
        return None
    info, status = registers[:2]
    if row.reason:
        return _of(row, info >> 20 & 0x3F, fatal)
    if row.exact:
        return _of(row, status, fatal)
    asked = {_of(row, 1 << bit, fatal) for bit in range(32) if status >> bit & 1}
    if "reset" in asked:
        return "reset"
    if not asked or None in asked:
        return None
    return "restart_app" if "restart_app" in asked else "none"


def _of(row: _Unit, value: int, fatal: bool) -> XidAction | None:
    if value in row.reset or (fatal and value in row.fatal):
        return "reset"
    if value in row.restart_app:
        return "restart_app"
    return "none" if value in row.none else None
