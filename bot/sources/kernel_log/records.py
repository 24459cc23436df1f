"""One record of a log file as what a host told: a line of syslog, or a journal entry in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Protocol

from bot.sources.kernel_log import headers

MOST = 1 << 20  # bytes of a journal entry: its message is one of many fields
PLAIN = 8192  # bytes of a line of syslog, whose receivers cut at that by default (rsyslog, maxMessageSize)
PLAUSIBLE = range(1_000_000_000, 10_000_000_000)  # Unix seconds of a clock that was ever set


@dataclass(frozen=True, slots=True)
class Told:
    """text: the message alone. at: by the host's own clock. kernel: the journal vouches that the kernel wrote it."""

    at: int | None
    host: str | None
    text: str
    kernel: bool = False


class Decode(Protocol):
    """A record, or None for what is none. Never raises. needles: one of them is in every record that matters."""

    @property
    def needles(self) -> tuple[bytes, ...]: ...

    def __call__(self, raw: bytes, now: int) -> Told | None: ...


@dataclass(frozen=True, slots=True)
class Syslog:
    """Plain lines. Anybody on a node can write any of them, also under the kernel's name."""

    zone: tzinfo
    needles: tuple[bytes, ...] = (b"NVRM:", b": SXid", b"XID ", b"nvidia 0")

    def __call__(self, raw: bytes, now: int) -> Told | None:
        line = raw[:PLAIN].decode("utf-8", "replace").strip("\0\r\n ")
        header = headers.split(line, now, self.zone)
        return Told(header.at, header.host, header.rest)


@dataclass(frozen=True, slots=True)
class Journal:
    """journalctl -o json, and what vector and fluent-bit make of it (lower case, `message`, `host`, `timestamp`).

    A field that begins with an underscore is journald's own word; no program can set one. So the transport counts only
    with its underscore: where a shipper has stripped it, a program's own field TRANSPORT would look the same.
    """

    zone: tzinfo
    # the last two: bytes in a list, which is how journald writes a message that is not UTF-8
    needles: tuple[bytes, ...] = (b"NVRM:", b": SXid", b"XID ", b"nvidia 0", b"78,86,82,77", b"78, 86, 82, 77")

    def __call__(self, raw: bytes, now: int) -> Told | None:
        if len(raw) > MOST:
            return None
        try:
            entry = json.loads(raw.strip(b"\0\r\n ,"))
        except (ValueError, RecursionError):
            return None
        if not isinstance(entry, dict):
            return None
        text = _text(_field(entry, "MESSAGE"))
        host = _field(entry, "_HOSTNAME", "HOSTNAME", "host")
        return Told(self._at(entry, now), host if isinstance(host, str) else None, text, _by_kernel(entry))

    def _at(self, entry: Mapping[str, Any], now: int) -> int | None:
        for name in ("_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP"):
            micros = _field(entry, name, name.lstrip("_"))
            digits = str(micros).strip()
            if digits.isascii() and digits.isdigit() and len(digits) < 20 and int(digits) // 1_000_000 in PLAUSIBLE:
                return int(digits) // 1_000_000
        for name in ("timestamp", "date", "@timestamp"):
            told = _field(entry, name)
            if isinstance(told, int | float) and not isinstance(told, bool) and PLAUSIBLE[0] <= told < PLAUSIBLE[-1]:
                return int(told)
            if isinstance(told, str) and (at := headers.split(told, now, self.zone).at) is not None:
                return at
        return None


def _field(entry: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        for spelled in (name, name.lower()):
            if entry.get(spelled) is not None:
                return entry[spelled]
    return None


def _by_kernel(entry: Mapping[str, Any]) -> bool:
    """Facility 0 is the kernel's; a program that writes to /dev/kmsg gets another one."""
    facility = _field(entry, "SYSLOG_FACILITY")
    return _field(entry, "_TRANSPORT") == "kernel" and (facility is None or str(facility) == "0")


def _text(message: Any) -> str:
    """A string; its bytes; or several of one name, which only a program writes."""
    if isinstance(message, str):
        return message
    if isinstance(message, list) and all(isinstance(value, int) and 0 <= value < 256 for value in message):
        return bytes(message).decode("utf-8", "replace")
    if isinstance(message, list):
        return "\n".join(value for value in message if isinstance(value, str))
    return ""
