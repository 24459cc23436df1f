"""Holding and releasing nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bot.errors import SourceError
from bot.gate.answer import ALREADY, DONE, REFUSED, UNCLEAR, End
from bot.gate.call import Call, allows, done, must_match, not_done
from bot.gate.settings import Settings
from bot.gate.slurm import Ran
from bot.model import Holder, Node
from bot.slurm_records import TAG, holder_of

NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_REASON = 200


def hold_node(call: Call) -> tuple[int, dict[str, object]]:
    """Drain with our tag. Whoever holds the node already keeps it; a note of somebody's is not overwritten either."""
    tag = _tag_in(call.reason)
    nodes, reasons = _nodes_with_target(call)
    node = nodes[call.target]
    _stop_if_held(node, tag, call)
    _stop_if_noted(reasons[call.target], node.name)
    call.must_not_be_paused()
    _must_have_room(nodes, call)
    call.must_have_slot("hold")
    call.say("hold", reason=call.reason)
    ran = call.slurm.change("update", f"nodename={node.name}", "state=drain", f"reason={call.reason}")
    call.say("held", code=ran.code, said=ran.said)
    after = _read_again(call, ran)
    if after.ours and after.ours.tag == tag:
        return done(f"{node.name} is held as {tag}", state=after.state)
    raise not_done(ran, f"{node.name} is {after.state} and not held by us", state=after.state)


def release_own(call: Call) -> tuple[int, dict[str, object]]:
    """Lift our drain, never anybody else's. UNDRAIN leaves a node down that is down for another reason."""
    nodes, _ = _nodes_with_target(call)
    node = nodes[call.target]
    if node.ours is None:
        raise End(ALREADY, f"{node.name} is not held by us{_held_by(node)}", ours=call.began("release"))
    call.must_not_be_paused()
    call.say("release", tag=node.ours.tag)
    ran = call.slurm.change("update", f"nodename={node.name}", "state=undrain")
    call.say("released", code=ran.code, said=ran.said)
    after = _read_again(call, ran)
    if after.ours is None:
        return done(f"{node.name} is released{_held_by(after)}", state=after.state, tag=node.ours.tag)
    raise not_done(ran, f"{node.name} is still held as {after.ours.tag}", state=after.state)


def _tag_in(reason: str) -> str:
    found = TAG.match(reason)
    if not found or not reason[found.end() :].strip() or len(reason) > MAX_REASON or not reason.isprintable():
        raise End(REFUSED, f"--reason must be `xidbot:<tag> why` in at most {MAX_REASON} printable characters")
    return found[1]


def _nodes_with_target(call: Call) -> tuple[dict[str, Node], dict[str, str]]:
    """All nodes of the cluster and their raw reasons; the target is among them and we may touch it."""
    must_match(NODE, call.target, "node")
    nodes, reasons = call.slurm.nodes()
    if call.target not in nodes:
        raise End(REFUSED, f"Slurm knows no node {call.target}")
    if not allows(call.settings.nodes, call.target):
        raise End(REFUSED, f"{call.target} is not in the gate's list of nodes")
    return nodes, reasons


def _stop_if_held(node: Node, tag: str, call: Call) -> None:
    if node.ours:
        ours = node.ours.tag == tag
        if ours and call.began("hold"):  # the caller died after Slurm had done it
            raise End(DONE, f"{node.name} is held as {tag}", ours=True, state=node.state)
        raise End(ALREADY, f"{node.name} is held as {node.ours.tag}", ours=ours, holder=_spoken(node.ours))
    if node.others:
        holder = _spoken(node.others[0])
        raise End(ALREADY, f"{node.name} is held by {holder}", ours=False, holder=holder)


def _stop_if_noted(reason: str, name: str) -> None:
    note = holder_of(reason) if reason else None
    if note and note.kind in ("person", "health"):
        raise End(REFUSED, f"{name} carries a note and is not drained: {_spoken(note)}; it would be overwritten")


def _held_by(node: Node) -> str:
    return f", but by {_spoken(node.others[0])}" if node.others else ""


def _spoken(holder: Holder) -> str:
    return f"{holder.by}: {holder.why}"


def held_limit(settings: Settings, nodes: Mapping[str, Node]) -> int:
    """How many nodes we may hold at once. The share is one of the nodes we may touch, and never makes it none."""
    allowed = sum(1 for name in nodes if allows(settings.nodes, name))
    share = max(1, int(settings.caps.held_share * allowed)) if allowed else 0
    return min(settings.caps.held_nodes, share)


def _must_have_room(nodes: Mapping[str, Node], call: Call) -> None:
    held, limit = held_by_us(nodes), held_limit(call.settings, nodes)
    if len(held) >= limit:
        raise End(REFUSED, f"{len(held)} nodes are held by us ({', '.join(held)}), {limit} are allowed", held=held)


def held_by_us(nodes: Mapping[str, Node]) -> dict[str, str]:
    return {name: node.ours.tag for name, node in sorted(nodes.items()) if node.ours}


def _read_again(call: Call, ran: Ran) -> Node:
    try:
        node = call.slurm.nodes()[0].get(call.target)
    except (End, SourceError) as error:
        raise End(UNCLEAR, f"Slurm said {ran.said!r} and cannot be read since: {error}") from error
    if node is None:
        raise End(UNCLEAR, f"Slurm said {ran.said!r} and shows no node {call.target} since")
    return node
