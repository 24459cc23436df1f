"""Slurm's host lists: `node[01-03,07],gpu-1`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import product

from bot.errors import BadReply
from bot.slurm_records.values import SOURCE, short

MAX_HOSTS = 4096
_NO_HOSTS = ("", "(null)", "None assigned", "None")
_RANGES = r"\[[0-9]{1,9}(?:-[0-9]{1,9})?(?:,[0-9]{1,9}(?:-[0-9]{1,9})?)*\]"
_HOSTS = re.compile(rf"(?:[A-Za-z0-9._-]|{_RANGES})+")


def parse_hostlist(text: str, cap: int = MAX_HOSTS) -> tuple[str, ...]:
    """`node-[01-03],login` → names in order, each once. The lower bound's width is kept, as Slurm does: n[08-100].

    (ClusterShell refuses `n[01-100]`, which is how Slurm itself writes n01 … n100.) Raises BadReply.
    """
    if text.strip() in _NO_HOSTS:
        return ()
    names: dict[str, None] = {}
    for part in _host_parts(text):
        names.update(dict.fromkeys(_expand(part, cap)))
        if len(names) > cap:
            raise BadReply(SOURCE, f"a host list of more than {cap} hosts")
    return tuple(names)


def _host_parts(text: str) -> Iterable[str]:
    at = 0
    while True:
        part = _HOSTS.match(text, at)
        if part is None:
            raise BadReply(SOURCE, f"not a host list: {short(text)}")
        yield part.group()
        if part.end() == len(text):
            return
        if text[part.end()] != ",":
            raise BadReply(SOURCE, f"not a host list: {short(text)}")
        at = part.end() + 1


def _expand(part: str, cap: int) -> Iterable[str]:
    pieces = [_piece(p, cap) for p in re.findall(r"\[[^\]]*\]|[^\[]+", part)]
    if math.prod(len(p) for p in pieces) > cap:
        raise BadReply(SOURCE, f"a host list of more than {cap} hosts")
    return map("".join, product(*pieces))


def _piece(text: str, cap: int) -> list[str]:
    if not text.startswith("["):
        return [text]
    numbers: list[str] = []
    for item in text[1:-1].split(","):
        low, _, high = item.partition("-")
        first, last = int(low), int(high or low)
        if last < first or last - first + len(numbers) >= cap:
            raise BadReply(SOURCE, f"host range {item} is backwards or names more than {cap} hosts")
        numbers += [str(n).zfill(len(low)) for n in range(first, last + 1)]
    return numbers
