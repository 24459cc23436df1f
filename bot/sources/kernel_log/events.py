"""What the logs told of GPUs, each event once, and as marks for the core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

from bot.model import Mark, Provenance
from bot.policy import XidAction
from bot.signals.xid import xid
from bot.signals.xid_lines import XidLine

ONE = 5  # s within which the same GPU and code is one event (Delta, SC'25)
MOST = 500  # events of one host that are kept: a host that floods its log must not cost more
ALL = 20_000  # events of all hosts that are kept over a restart: 5 MB
OFF_THE_BUS = 79  # the Xid that says the same as a lost GPU
GAUGE = 600  # s for which the gauge may show the code: five minutes of change, a scrape, the ingest lag
CONDEMNS = ("reset", "reboot", "repair")  # action classes that are hard evidence
CLAIMED, CLAIMED_SOFT, LOST, SWITCH = "xid_claimed", "xid_claimed_soft", "gpu_lost_log", "nvswitch"
TOLD_BY_ANYBODY = (CLAIMED, CLAIMED_SOFT, "xid_restart_app")
TOLD_BY_THE_KERNEL = (LOST, SWITCH, *(f"xid_{action}" for action in get_args(XidAction) if action != "none"))


@dataclass(frozen=True, slots=True)
class Event:
    """The same GPU and code, from `at` to `until` (Unix seconds, the host's clock). host: as it calls itself.
    uuid: the GPU's, where the driver told it."""

    host: str
    at: int
    until: int
    line: XidLine
    provenance: Provenance
    uuid: str | None = None

    @property
    def what(self) -> tuple[object, ...]:
        """Two events that agree in this and in time are one. Xid 154 with another action is another event."""
        line = self.line
        return line.kind, line.code, line.pci, line.action

    def near(self, other: Event) -> bool:
        return self.at - ONE <= other.until and other.at - ONE <= self.until


@dataclass(frozen=True, slots=True)
class GpuXid:
    """An Xid that is the application's as a rule, with all that tells whether it stays with one GPU under different
    jobs. node: the scheduler's name where `known`."""

    node: str
    known: bool
    at: int
    until: int
    code: int
    pci: str | None
    uuid: str | None
    gpu_instance: str | None
    pid: int | None
    process: str | None
    provenance: Provenance


@dataclass
class Events:
    """Kept in memory for as long as they are asked for."""

    _by_host: dict[str, dict[tuple[object, ...], list[Event]]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Joined with what is the same, whichever log told it first. The kernel's word outranks a claim."""
        mine = self._by_host.setdefault(event.host, {})
        same = mine.setdefault(event.what, [])
        for i, other in enumerate(same):
            if other.near(event):
                same[i] = _joined(other, event)
                return
        same.append(event)
        if len(mine) > 2 * MOST or len(same) > 2 * MOST:
            self._by_host[event.host] = _sorted_in(_newest(mine))

    def forget(self, before: int) -> None:
        kept = {host: _sorted_in(e for e in _flat(mine) if e.until >= before) for host, mine in self._by_host.items()}
        self._by_host = {host: mine for host, mine in kept.items() if mine}

    def all(self) -> tuple[Event, ...]:
        return tuple(event for mine in self._by_host.values() for event in _newest(mine))

    # -- kept over a restart -------------------------------------------------------------------------------------------

    def dump(self) -> list[Mapping[str, Any]]:
        """Without what is as by default, because there may be thousands."""
        plain = asdict(XidLine("xid"))
        return [
            {**asdict(event), "line": {k: v for k, v in asdict(event.line).items() if k == "kind" or v != plain[k]}}
            for event in sorted(self.all(), key=_weight)[:ALL]
        ]

    def load(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Raises ValueError, KeyError or TypeError for what dump did not make."""
        for row in rows:
            line = {**row["line"], "registers": tuple(row["line"].get("registers", ()))}
            self.add(Event(**{**row, "line": XidLine(**line)}))


def _flat(mine: Mapping[tuple[object, ...], Sequence[Event]]) -> Iterator[Event]:
    return (event for same in mine.values() for event in same)


def _newest(mine: Mapping[tuple[object, ...], Sequence[Event]]) -> Sequence[Event]:
    """The kernel's before claims, of which anybody can make any number."""
    return sorted(_flat(mine), key=_weight)[:MOST]


def _weight(event: Event) -> tuple[bool, int]:
    return event.provenance == "claimed", -event.at


def _sorted_in(events: Iterable[Event]) -> dict[tuple[object, ...], list[Event]]:
    found: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        found.setdefault(event.what, []).append(event)
    return found


def _joined(first: Event, second: Event) -> Event:
    """The line of the kernel, else the one that tells more (an SXid's first line alone tells whether it is fatal)."""
    by_kernel = first.provenance == "kernel", second.provenance == "kernel"
    tells = first.line.fatal is not None, second.line.fatal is not None
    better = second if (by_kernel[1], tells[1]) > (by_kernel[0], tells[0]) else first
    return replace(
        better,
        at=min(first.at, second.at),
        until=max(first.until, second.until),
        uuid=first.uuid or second.uuid,
    )


# -- what they mean ----------------------------------------------------------------------------------------------------


def action_of(line: XidLine) -> XidAction:
    return line.action or xid(line.code).action


def marks(events: Sequence[tuple[Event, str, bool]]) -> Iterator[Mark]:
    """events: with the node's name and whether the scheduler knows it."""
    told = {(e.host, e.line.pci): e for e, _, _ in events if e.line.kind == "xid" and e.line.code == OFF_THE_BUS}
    for event, node, known in events:
        signal = _signal(event)
        twin = told.get((event.host, event.line.pci)) if event.line.kind == "lost" else None
        if signal and not (twin and twin.near(event)):
            until = event.until if event.until > event.at else None
            yield Mark(event.at, node, signal, _value(event), until, _words(event), event.provenance, known)
        if _says_more(event):
            gauge = f"xid_{xid(event.line.code).action}"
            yield Mark(event.at, node, gauge, 0.0, event.at + GAUGE, provenance=event.provenance, known=known)


def _says_more(event: Event) -> bool:
    """The kernel's own line asks for something else than its code does, which is all that the gauge shows."""
    line = event.line
    other = line.action is not None and line.action != xid(line.code).action
    return line.kind == "xid" and other and xid(line.code).action != "none" and event.provenance == "kernel"


def _signal(event: Event) -> str | None:
    """None: it asks for nothing. What only ends a process is shown as such whoever tells it: a claim must not make more
    of it. A claim goes to a signal of its own, which never counts as the kernel's word."""
    line, claimed = event.line, event.provenance == "claimed"
    if line.kind == "lost":
        return CLAIMED if claimed else LOST
    if line.kind == "sxid":
        return None if not line.fatal else CLAIMED_SOFT if claimed else SWITCH
    action = action_of(line)
    if action == "none":
        return None
    if claimed and action != "restart_app":
        return CLAIMED if action in CONDEMNS else CLAIMED_SOFT
    return f"xid_{action}"


def _value(event: Event) -> float:
    """The code. A lost GPU that is claimed stands among codes, so it gets that of its kind."""
    if event.line.kind == "lost":
        return float(OFF_THE_BUS) if event.provenance == "claimed" else 1.0
    return float(event.line.code)


def _words(event: Event) -> str:
    line = event.line
    if line.kind == "lost":
        what = f"GPU lost: {line.text}"
    elif line.kind == "sxid":
        what = f"SXid {line.code} ({line.text})"
    else:
        what = f"Xid {line.code} ({_name(line)})"
    part = f", GPU instance {line.gpu_instance}" if line.gpu_instance else ""
    thing = "NVSwitch" if line.kind == "sxid" else "GPU"
    where = f" on {thing} {line.pci}{part}" if line.pci else ""
    return f"{what}{where} ({'kernel log' if event.provenance == 'kernel' else 'syslog'})"


def _name(line: XidLine) -> str:
    """What Xid 154 asks for is in its text, behind the last bracket."""
    name = xid(line.code).name
    wanted = line.text.rsplit("(", 1)[-1].rstrip(") ") if line.code == 154 and "(" in line.text else ""
    return f"{name}: {wanted}" if wanted else name


def application(events: Sequence[tuple[Event, str, bool]]) -> Iterator[GpuXid]:
    for event, node, known in events:
        line = event.line
        if line.kind == "xid" and xid(line.code).application:
            yield GpuXid(
                node, known, event.at, event.until, line.code, line.pci, event.uuid, line.gpu_instance, line.pid,
                line.process, event.provenance,
            )  # fmt: skip
