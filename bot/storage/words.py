"""A stall in words: what it is, the numbers, and what to do with an upper bound of what that is worth. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bot.model import Measures, Stall, Verdict

NOTABLE = 1.5  # times the others: a node worth naming
LOST = 0.001  # share of requests sent again that is worth saying


@dataclass(frozen=True, slots=True)
class StallWords:
    """What a message says of it."""

    title: str
    numbers: tuple[str, ...]
    advice: str
    cost: str


def words(stall: Stall, gpu_hours: float = 0.0) -> StallWords:
    cost = f"It cost up to {gpu_hours:,.1f} idle GPU-hours" if gpu_hours else ""
    return StallWords(_title(stall), tuple(numbers(stall.measures)), ADVICE[stall.verdict](stall), cost)


CAUSES: Mapping[Verdict, str] = {
    "client_slots": "the clients' RPC slots are full",
    "server": "the server answers late",
    "node_path": "the path of {node} is slow",
    "link": "the nodes' links are full",
    "metadata": "metadata operations take the time",
    "unknown": "the cause cannot be told yet",
}


def cause(stall: Stall) -> str:
    if stall.rule == "hang" and stall.verdict == "server":
        return "the server does not answer"
    if stall.rule == "hang" and stall.verdict == "node_path":
        return f"{stall.node} gets no answer, others do"
    if stall.rule == "overdue_save" and stall.verdict == "unknown" and _idle(stall.measures):
        return "the storage is idle and answers"
    return CAUSES[stall.verdict].format(node=stall.node)


def _title(stall: Stall) -> str:
    what = {
        "slow_save": "Slow save to",
        "slow_load": "Slow load from",
        "hang": "Requests hang on",
        "overdue_save": "Save overdue on",
    }[stall.rule]
    return f"{what} {stall.export}: {cause(stall)}"


def numbers(m: Measures) -> list[str]:
    """Only what was measured."""
    told = [
        f"requests wait on {m.waiting_nodes} of {m.nodes} nodes and none completes" if m.waiting_nodes else "",
        f"{m.queue_share:.0%} of request time is queueing in the client" if m.queue_share is not None else "",
        _flight(m),
        f"backlog {m.backlog:,.0f}" if m.backlog is not None and m.backlog >= 1 else "",
        _rtt(m),
        f"{m.worst_node} {seconds(m.worst_rtt)}" if _stands_out(m) and m.worst_rtt is not None else "",
        f"{m.retransmitted:.1%} sent again" if m.retransmitted is not None and m.retransmitted >= LOST else "",
        _rate(m),
        f"links {m.link_use:.0%} used" if m.link_use is not None else "",
        ", ".join(f"{op} {share:.0%}" for op, share in m.op_mix) + " of request time" if m.op_mix else "",
        f"slots × size / round trip allow {rate(m.ceiling)} a node" if m.ceiling is not None else "",
    ]
    return [text for text in told if text]


def _flight(m: Measures) -> str:
    if m.in_flight is None or m.in_flight < 0.5:
        return ""
    of = f"{m.slots:,.0f} slots" if m.slots is not None else "an unknown number of slots"
    return f"{m.in_flight:,.0f} requests in flight on {of} a node"


def _rtt(m: Measures) -> str:
    if m.rtt is None:
        return ""
    return f"round trip {seconds(m.rtt)}" + (f" (usually {seconds(m.rtt_usual)})" if m.rtt_usual is not None else "")


def _rate(m: Measures) -> str:
    if m.rate is None:
        return ""
    return f"{rate(m.rate)} in all" + (f" (usually {rate(m.rate_usual)})" if m.rate_usual is not None else "")


def _stands_out(m: Measures) -> bool:
    return bool(m.worst_node and m.worst_rtt is not None and m.rtt is not None and m.worst_rtt >= NOTABLE * m.rtt)


def _idle(m: Measures) -> bool:
    return _measured(m) and (m.in_flight or 0) < 1 and not m.waiting_nodes


def _measured(m: Measures) -> bool:
    """Counters tell of the clients at all."""
    return any(
        value is not None for value in (m.in_flight, m.queue_share, m.backlog, m.rtt, m.rate, m.slots, m.link_use)
    )


# -- advice ------------------------------------------------------------------------------------------------------------


def _slots(stall: Stall) -> str:
    """k times the slots give at most k times the ceiling, no queue at all what the queue takes, the link the rest."""
    m = stall.measures
    bounds = [1 / (1 - m.queue_share)] if m.queue_share is not None and m.queue_share < 1 else []
    bounds += [1 / m.link_use] if m.link_use else []
    ceiling = f", so twice as many allow {rate(2 * m.ceiling)} a node" if m.ceiling is not None else ""
    worth = f" Worth at most {_times(min(bounds))}: then there is no queue, or the link is full." if bounds else ""
    return (
        "give the clients more slots: nconnect, the slot table (sunrpc.tcp_max_slot_table_entries), "
        f"nfs.max_session_slots for v4.1, a larger wsize{ceiling}.{worth} "
        "Fewer files at once, staggered or asynchronous saves need fewer"
    )


def _server(stall: Stall) -> str:
    m = stall.measures
    if stall.rule == "hang":
        return "look at the server and the network to it first; restarting runs does not help while it does not answer"
    worth = f" As usual again it is worth at most {_times(m.rtt / m.rtt_usual)}." if m.rtt and m.rtt_usual else ""
    return (
        "look at the server: failover, load by others, full disks." + worth + " More slots or nconnect only lengthen "
        "its queue; staggered or asynchronous saves shorten it"
    )


def _path(stall: Stall) -> str:
    m = stall.measures
    gain = m.worst_rtt / m.rtt if m.worst_rtt and m.rtt and m.worst_node == stall.node else None
    worth = f" Worth at most {_times(gain)} on that node: all others wait for it." if gain and gain > 1 else ""
    return f"look at the port, cable, route and errors of {stall.node}.{worth} It is no GPU fault: nothing is excluded"


def _link(stall: Stall) -> str:
    m = stall.measures
    gain = m.rate_usual / m.rate if m.rate and m.rate_usual else None
    worth = f" Without the other traffic it is worth at most {_times(gain)}." if gain and gain > 1 else ""
    return (
        "look what else is on the links; then write less or later: asynchronous or staggered saves, more links."
        f"{worth} nconnect and slots are worth nothing here"
    )


def _metadata(stall: Stall) -> str:
    moved = sum(share for op, share in stall.measures.op_mix if op in ("READ", "WRITE", "COMMIT"))
    worth = f" Worth at most {_times(1 / moved)}: then all time is data." if 0 < moved < 1 else ""
    return f"fewer, larger files; longer attribute caching (actimeo); find who asks so often.{worth}"


def _unknown(stall: Stall) -> str:
    m = stall.measures
    if stall.rule == "overdue_save" and _idle(m):
        return "look at the job itself: it writes nothing, and what little it asks is answered"
    like = "it looks like full RPC slots (a queue, and answers as fast as usual). " if _queues(m) else ""
    if not _measured(m):
        return f"look at the job's log and at the storage. To tell more, xidbot needs {'; '.join(m.missing)}"
    if m.missing:
        return f"{like}to tell, xidbot needs: {'; '.join(m.missing)}"
    return like + "look at the server and at the job's log"


def _queues(m: Measures) -> bool:
    flat = m.rtt is not None and m.rtt_usual is not None and m.rtt < NOTABLE * m.rtt_usual
    return flat and m.slots is None and (m.queue_share or 0) > 0.5


ADVICE: Mapping[Verdict, Callable[[Stall], str]] = {
    "client_slots": _slots,
    "server": _server,
    "node_path": _path,
    "link": _link,
    "metadata": _metadata,
    "unknown": _unknown,
}


# -- units -------------------------------------------------------------------------------------------------------------


def _times(value: float) -> str:
    return f"{value:.1f}×" if value < 10 else f"{value:,.0f}×"


def seconds(value: float) -> str:
    """`0.8 ms`, `100 ms`, `12.9 s`."""
    if value < 1:
        return f"{value * 1000:.1f} ms" if value < 0.01 else f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"


def rate(value: float) -> str:
    """`39.2 GB/s`."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:.0f} B/s"
