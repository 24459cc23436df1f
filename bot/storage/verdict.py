"""Where the time goes: Little's law on the counters of a stall, and what follows. Pure.

Requests in flight = completed requests/s × round trip = summed response time per second; those that queue in the client
the same with queue time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bot.model import Measures, Verdict
from bot.storage.numbers import MountFacts, StorageNumbers
from bot.storage.past import Usual
from bot.storage.window import Flags, Floats

MIX = 4  # operations that are named
OTHERS = 3  # nodes besides the one that is judged against them
BEHIND = 0.95  # of the others' bytes: it has not written its share yet
TEN = 10.0  # times the others' retransmissions


@dataclass(frozen=True, slots=True)
class Case:
    """A stall to be judged. names: of the direction's counters (bytes, requests, round trips, queue, whole time).
    sums: name → (n,) over `seconds` (n,), the newest samples; whole: the same since the burst began, or empty. mix:
    operation → summed request time. slots, link: (n,), NaN = unknown. hung, pending: (n,). alive: (n,) nodes whose
    newest sample completed something. elsewhere: so it did on other nodes of the same mount."""

    export: str
    names: tuple[str, ...]
    nodes: tuple[str, ...]
    sums: Mapping[str, Floats]
    whole: Mapping[str, Floats]
    seconds: Floats
    mix: Mapping[str, float]
    usual: Usual | None
    hung: Flags
    pending: Floats
    slots: Floats
    link: Floats
    alive: Flags
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Judge:
    """The numbers and what the site told of its mounts."""

    numbers: StorageNumbers
    facts: MountFacts

    def judge(self, case: Case) -> tuple[Verdict, str, Measures]:
        """(verdict, node if it is one node's path, the numbers)."""
        found = self.measures(case)
        if case.hung.any():
            verdict, node = self._of_hang(case)
        else:
            verdict, node = self._of_slowness(case, found)
        return verdict, node, found

    # -- the numbers ---------------------------------------------------------------------------------------------------

    def measures(self, case: Case) -> Measures:
        size, requests, rtt, queue, wait = case.names
        each_rtt = _ratio(case.sums, rtt, requests)
        worst = int(np.nanargmax(each_rtt)) if not np.isnan(each_rtt).all() else None
        slots = self._slots(case)
        return Measures(
            queue_share=_share(case.sums, queue, (wait,))
            if wait in case.sums
            else _share(case.sums, queue, (queue, rtt)),
            in_flight=self._in_flight(case),
            slots=slots,
            backlog=_middle(_ratio(case.sums, "backlog", "sends")),
            rtt=_middle(each_rtt),
            rtt_usual=_number(case.usual.rtt) if case.usual else None,
            retransmitted=_share(_again(case.sums), "again", ("asked",)),
            worst_node=case.nodes[worst] if worst is not None and len(case.nodes) > 1 else "",
            worst_rtt=float(each_rtt[worst]) if worst is not None and len(case.nodes) > 1 else None,
            rate=float((case.sums[size] / case.seconds).sum()) if size in case.sums else None,
            rate_usual=_number(case.usual.rate) if case.usual else None,
            link_use=self._link_use(case),
            op_mix=_mix(case.mix),
            ceiling=self._ceiling(case, slots, _middle(each_rtt)),
            waiting_nodes=int(case.hung.sum()),
            nodes=len(case.nodes),
            missing=self._missing(case, slots),
        )

    def _slots(self, case: Case) -> float | None:
        """Per node: the site's word first. node_exporter sums its connections or shows one of them."""
        connections = self.facts.nconnect or 1
        if case.export in self.facts.slots:
            return float(self.facts.slots[case.export] * connections)
        told = case.slots[case.slots > 0]
        return float(np.median(told) * connections) if len(told) else None

    def _in_flight(self, case: Case) -> float | None:
        _, _, rtt, _, _ = case.names
        return _middle(case.sums[rtt] / case.seconds, case.sums[rtt] > 0) if rtt in case.sums else None

    def _link_use(self, case: Case) -> float | None:
        size = case.names[0]
        busy = _busy(case)
        told = [_middle(case.link, busy & ~np.isnan(case.link))]
        if self.facts.link and size in case.sums:
            told.append(_middle(case.sums[size] / case.seconds / self.facts.link, busy))
        return max((t for t in told if t is not None), default=None)

    def _ceiling(self, case: Case, slots: float | None, rtt: float | None) -> float | None:
        size = self.facts.wsize or _middle(_ratio(case.sums, case.names[0], case.names[1]))
        return slots * size / rtt if slots and size and rtt else None

    def _missing(self, case: Case, slots: float | None) -> tuple[str, ...]:
        """What would be needed to tell more, in the words of the site file and of node_exporter."""
        _, requests, rtt, queue, _ = case.names
        needed = []
        if requests not in case.sums or rtt not in case.sums:
            needed.append("node_exporter --collector.mountstats (per-operation counters)")
        elif queue not in case.sums:
            needed.append("node_mountstats_nfs_operations_queue_time_seconds_total")
        if slots is None:
            needed.append("the RPC slots of this mount (it reports none): storage.slots in the site file")
        if case.usual is None:
            needed.append(f"{self.numbers.known_after} normal saves, to know the usual round trip")
        if self._link_use(case) is None:
            needed.append("the link's speed: node_network_speed_bytes or storage.link in the site file")
        return tuple(needed)

    # -- what follows --------------------------------------------------------------------------------------------------

    def _of_hang(self, case: Case) -> tuple[Verdict, str]:
        """Nothing completes on some nodes. Who else still gets answers says where to look."""
        alive, hung = int((case.alive & ~case.hung).sum()), int(case.hung.sum())
        if hung <= max(1, self.numbers.node_share * len(case.nodes)) and (alive or case.elsewhere):
            return "node_path", case.nodes[int(np.argmax(np.where(case.hung, case.pending, -1)))]
        return ("server", "") if hung >= alive else ("unknown", "")

    def _of_slowness(self, case: Case, found: Measures) -> tuple[Verdict, str]:
        n = self.numbers
        node = self._bad_path(case)
        if node:
            return "node_path", node
        if not _busy(case).any():
            return "unknown", ""
        if found.link_use is not None and found.link_use >= n.link_use:
            return "link", ""
        if self._metadata(case):
            return "metadata", ""
        if found.rtt is None or found.rtt_usual is None:
            return "unknown", ""
        if found.rtt >= n.rtt_high * found.rtt_usual:
            return "server", ""
        return ("client_slots", "") if self._waits_for_slots(found) else ("unknown", "")

    def _waits_for_slots(self, found: Measures) -> bool:
        """The server answers as ever and most of the time goes by in the client's queue: its slots are full, or nearly
        all of it does, as where an NFSv4.1 server has granted the session fewer slots than the table shows."""
        queued, n = found.queue_share, self.numbers
        if queued is None or not found.slots:
            return False  # RDMA tells no slots: nobody knows
        return queued >= n.queue_share and (self._slots_full(found) or queued >= n.queue_all)

    def _slots_full(self, found: Measures) -> bool:
        """By what is in flight, or by what waits for a slot: writes in bursts fill the table only at times, and
        the mean in flight hides it; nothing waits in the backlog unless the table is full."""
        if not found.slots:
            return False  # RDMA tells none: nobody knows
        in_flight, backlog = found.in_flight or 0, found.backlog or 0
        return in_flight >= self.numbers.slot_use * found.slots or backlog >= self.numbers.backlog_full * found.slots

    def _bad_path(self, case: Case) -> str:
        """One node (or very few) whose requests take far longer, or get lost, and that is behind the others."""
        sums = case.whole or case.sums
        size, requests, rtt, _, _ = case.names
        if len(case.nodes) <= OTHERS or requests not in sums or size not in sums:
            return ""
        rtts, losses = _ratio(sums, rtt, requests), _ratio({**sums, **_again(sums)}, "again", "asked")
        took_part = sums[requests] > 0
        behind = sums[size] < BEHIND * np.median(sums[size][took_part]) if took_part.any() else took_part
        bad = (self._far(rtts, case.usual) | self._lossy(losses)) & behind & took_part
        if not 0 < bad.sum() <= max(1, self.numbers.node_share * took_part.sum()):
            return ""
        return case.nodes[int(np.argmax(np.where(bad, np.nan_to_num(rtts), -1)))]

    def _far(self, rtts: Floats, usual: Usual | None) -> Flags:
        """Answers take far longer than on the other nodes, on which they take what is usual."""
        others = _middle(rtts)
        if others is None or (usual is not None and others >= self.numbers.rtt_high * usual.rtt):
            return np.zeros(len(rtts), dtype=bool)
        return np.asarray(np.nan_to_num(rtts) >= self.numbers.node_rtt * others)

    def _lossy(self, losses: Floats) -> Flags:
        others = _middle(losses) or 0.0
        return np.asarray(np.nan_to_num(losses) >= max(self.numbers.node_retransmits, TEN * others))

    def _metadata(self, case: Case) -> bool:
        """Much of the request time is in operations that move no data, and more than in the usual burst: a server that
        answers everything later leaves a save of many small files as it was."""
        n = self.numbers
        if "meta_wait" not in case.sums:
            return False
        meta = float(case.sums["meta_wait"].sum())
        data = sum(float(case.sums[w].sum()) for w in ("write_wait", "read_wait") if w in case.sums)
        usual = 0.0 if case.usual is None or np.isnan(case.usual.meta) else case.usual.meta
        if meta < case.seconds.max(initial=1) or meta < n.metadata_over * usual * data:
            return False
        share = n.metadata_share
        if usual and meta >= n.metadata_far * usual * data:  # an open that waits holds up writes that nobody counts yet
            share = n.metadata_least
        return meta >= share * (meta + data)


def _busy(case: Case) -> Flags:
    done = case.sums.get("done")
    return done > 0 if done is not None else np.zeros(len(case.nodes), dtype=bool)


def _ratio(sums: Mapping[str, Floats], over: str, under: str) -> Floats:
    """(n,), NaN where nothing happened. Division only over what moved."""
    if over not in sums or under not in sums:
        size = len(next(iter(sums.values()))) if sums else 0
        return np.full(size, np.nan)
    moved = sums[under] > 0
    return np.where(moved, sums[over] / np.where(moved, sums[under], 1.0), np.nan)


def _again(sums: Mapping[str, Floats]) -> dict[str, Floats]:
    """Transmissions beyond the first of each request; a client may count them for the whole node only."""
    if "asked" not in sums:
        return {}
    again = np.maximum(sums["sent_again"] - sums["asked"], 0.0) if "sent_again" in sums else sums.get("lost")
    if again is None:
        return {}
    return {"again": np.maximum(again, sums["lost"]) if "lost" in sums else again, "asked": sums["asked"]}


def _share(sums: Mapping[str, Floats], part: str, whole: tuple[str, ...]) -> float | None:
    if part not in sums or any(name not in sums for name in whole):
        return None
    total = sum(float(sums[name].sum()) for name in whole)
    return min(1.0, float(sums[part].sum()) / total) if total > 0 else None


def _middle(values: Floats, which: Flags | None = None) -> float | None:
    taken = values if which is None else values[which]
    taken = taken[~np.isnan(taken)]
    return float(np.median(taken)) if len(taken) else None


def _number(value: float) -> float | None:
    return None if np.isnan(value) else value


def _mix(mix: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    total = sum(mix.values())
    if total <= 0:
        return ()
    top = sorted(mix.items(), key=lambda item: (-item[1], item[0]))[:MIX]
    return tuple((name, round(time / total, 4)) for name, time in top if time / total >= 0.01)
