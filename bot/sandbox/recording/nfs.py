"""Counters of an NFS client by Little's law: what is in flight is the rate times the round trip, what waits in the
client is the rate times the time in its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bot.sandbox.recording.effects import Floats
from bot.sandbox.recording.storage import OPERATIONS, SLOTS

if TYPE_CHECKING:
    from bot.sandbox.recording.families import Family
    from bot.sandbox.recording.samples import Samples

SMALL = 160  # bytes of a question or an answer that carries no data


def nfs(samples: Samples, family: Family, day: int) -> Floats:
    """(ROWS, columns): how much the counter grows in a second; of the slots, how many there are."""
    what = family.name.removeprefix("node_mountstats_nfs_").removesuffix("_total")
    nodes = len(samples.story.fleet)
    if what == "transport_maximum_rpc_slots":
        return np.full((len(samples.phases(day)), nodes), float(SLOTS))
    if family.per == "operation":
        parts = [_operation(samples, what.removeprefix("operations_"), name, day) for name in OPERATIONS]
        return np.stack(parts, axis=2).reshape(len(parts[0]), -1)
    return _transport(samples, what, day)


def _operation(samples: Samples, what: str, name: str, day: int) -> Floats:
    ops = level(samples, f"ops/{name}", day)
    if what == "requests":
        return ops
    if what in ("transmissions", "major_timeouts"):
        again = level(samples, "again", day)
        return ops * (1 + again if what == "transmissions" else again / 10)
    if what.endswith("_bytes"):
        carries = name == ("WRITE" if what == "sent_bytes" else "READ")
        return ops * (level(samples, f"size/{name}", day) + SMALL if carries else SMALL)
    waits, answers = level(samples, f"queue/{name}", day), level(samples, f"rtt/{name}", day)
    return ops * {"queue_time": waits, "response_time": answers}.get(what.removesuffix("_seconds"), waits + answers)


def _transport(samples: Samples, what: str, day: int) -> Floats:
    ops = sum_of(samples, "requests", day)
    if what == "transport_receives":
        return ops
    if what == "transport_sends":  # what waits for an answer was sent when the answers ceased
        waiting = level(samples, "waiting", day)
        return ops + np.diff(waiting, axis=0, prepend=waiting[:1]) / 60
    if what == "transport_backlog_queue":  # each send adds the length of the queue behind it
        return ops * sum_of(samples, "queue_time_seconds", day)
    return sum_of(samples, "sent_bytes" if "transmit" in what else "received_bytes", day) * 1.02


def sum_of(samples: Samples, what: str, day: int) -> Floats:
    parts = [_operation(samples, what, name, day) for name in OPERATIONS]
    return np.asarray(np.sum(parts, axis=0))


def level(samples: Samples, what: str, day: int) -> Floats:
    return samples.raw(f"nfs/{what}", day)
