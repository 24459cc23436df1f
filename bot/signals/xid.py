"""NVIDIA's Xid table, and what we make of a code that is not in it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from pydantic import Field, RootModel

from bot import yamlfile
from bot.policy import Category, XidAction, shipped
from bot.yamlfile import Strict

LAST = 255  # codes looked for; NVIDIA's table ends at 172 (November 2026)


class XidInfo(Strict):
    """One code. kind: the part it is about; action: what has to happen to the GPU; application: the program is to
    blame as a rule."""

    code: int = 0
    name: str
    kind: Category = Field(alias="class")
    action: XidAction
    application: bool = False


class _Table(RootModel[dict[int, XidInfo]]):
    pass


@cache
def table() -> Mapping[int, XidInfo]:
    """The shipped table, code → entry. Raises ConfigError when the file is broken."""
    rows = yamlfile.validate(_Table, shipped("bot.signals", "xid.yaml")).root
    return {code: row.model_copy(update={"code": code}) for code, row in rows.items()}


def xid(code: int) -> XidInfo:
    """The entry of a code. One that NVIDIA added after our table was made is neither ignored nor does it condemn: the
    GPU wants a test."""
    known = table().get(code)
    return known or XidInfo(code=code, name=f"unknown Xid {code}", **{"class": "host"}, action="test")


@cache
def codes(actions: tuple[str, ...]) -> tuple[int, ...]:
    """The codes from 1 to LAST with one of these actions, ascending."""
    return tuple(code for code in range(1, LAST + 1) if xid(code).action in actions)
