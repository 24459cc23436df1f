"""The messages as people read them. `UPDATE_GOLDEN=1` writes them anew; read the difference before you commit it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bot.compose import STORY, incident_card, story_card
from bot.model import Holder, Incident, JobNote, Observation, Progress
from store.store import tag_of
from templates.blocks import card_blocks, fallback, plain
from templates.validate import validate
from tests.scenarios.test_stalls import Storage
from tests.scenarios.world import World

HERE = Path(__file__).parent
CLOCK = "slowest GPU clock 900 MHz, 1980 MHz on its peers"
LOG = "\n".join(
    (
        "rank 17 on node-03: a collective did not end in time; 31 lines from 4 nodes tell it",
        "[rank17]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, Timeout(ms)=600000)",
        "<!channel> look at `this` & ```that```",
    )
)


class Pace:
    """The world's eyes, and how its run gets on, set by hand."""

    def __init__(self, w: World) -> None:
        self.w, self.eyes = w, w.eyes
        self.notes: tuple[JobNote, ...] = ()
        self.seen = Progress("123#0", age=7200)
        w.eyes = self  # type: ignore[assignment]

    def observe(self, now: int) -> Observation:
        moved = now if self.seen.idle_since is None else None
        seen = replace(self.seen, moved_at=moved)
        return replace(self.eyes.observe(now), progress=(seen,), notes=self.notes)

    def work(self, minutes: float, level: float = 0.4, **facts: str) -> None:
        moves = ("fabric_bytes", "tensor_busiest")
        working = Progress("123#0", 7200, measured=True, moves=moves, level=level, level_of="activity")
        self.seen = replace(working, **facts)  # type: ignore[arg-type]
        self.w.run(minutes=minutes)

    def hang(self, minutes: float) -> None:
        self.work(minutes=1)
        signs = (
            ("tensor_busiest", "no tensor core is active on any of its 4 nodes"),
            ("fabric_bytes", "nothing moves over the fabric"),
            ("gpu_utilisation", "GPU use stays at 100 %"),
            ("gpu_power", "power flat at 310 W a GPU"),
        )
        by = ("tensor_busiest", "fabric_bytes")
        self.seen = Progress("123#0", 7200, measured=True, idle_since=self.w.now, by=by, signs=signs)
        self.w.run(minutes=minutes)


def gpu_fault(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    w.save("123", 41_000)
    w.run(minutes=1)
    w.fault("node-01", text="Xid 79 on GPU 3", since=w.now - 30)
    w.fault("node-01", "gpu_missing", text="7 of 8 GPUs while the exporter is up", evidence=0.95)
    w.run(seconds=30)


def approved(w: World) -> None:
    gpu_fault(w)
    w.say("UOPER", "approve 1")
    w.run(minutes=1)


def survived(w: World) -> None:
    approved(w)
    w.good("node-01")
    w.good("node-01", "gpu_missing")
    w.save("123", 41_500)
    w.run(minutes=7)


def refused(w: World) -> None:
    gpu_fault(w)
    w.gate.refuse = "caps: 3 of 3 nodes held by xidbot (node-08, node-22, node-40)"
    w.say("UOPER", "approve 1")
    w.run(minutes=1)


def given_up(w: World) -> None:
    gpu_fault(w)
    w.run(seconds=15)
    for _ in range(4):
        if w.scheduler.jobs["123"].attempts[-1].alive:
            w.scheduler.end("123", "FAILED", "1:0")
        w.run(minutes=1)
        w.say("UOPER", "approve 1")
        w.run(minutes=3)
    w.run(minutes=2)


def by_hand(w: World) -> None:
    gpu_fault(w)
    w.scheduler.hold("node-01", Holder("person", "root", "GPU 3 looks bad", since=w.now))
    w.scheduler.requeue("123", delay=0)
    w.run(minutes=1)


def precursor(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    text = "31 correctable row remaps in 24 h, usual 0"
    w.fault("node-04", "correctable_remap_growth", hard=False, evidence=0.7, value=31.0, text=text, since=None)
    w.run(seconds=30)


def failed(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    w.save("123", 900)
    w.run(seconds=30)
    w.scheduler.end("123", "FAILED", "1:0")
    w.run(minutes=1)


def blind(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    w.eyes.metrics_problem = "prometheus: no answer within 10 s"
    w.run(minutes=2)


def unknown_host(w: World) -> None:
    w.fault("nvidia-dcgm-exporter-42gcj", known=False, text="Xid 79 on GPU 0 <!channel> & `x`")
    w.run(seconds=30)


def stall(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    w.save("123", 900)
    w.run(minutes=1)
    storage = Storage(w)
    storage.stall()
    w.run(seconds=30)


def stall_over(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    storage = Storage(w)
    storage.stall("unknown", "hang")
    w.run(seconds=30)
    storage.stall("node_path", "hang", "node-02")
    w.run(minutes=10)
    storage.end(beyond=600)
    storage.saves(2)
    w.run(seconds=30)


def hung(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    w.save("123", 900)
    w.run(minutes=1)
    Pace(w).hang(minutes=12)


def hung_observe(w: World) -> None:
    hung(w)


def hung_with_log(w: World) -> None:
    hung(w)
    w.eyes.notes = (JobNote("123", w.now, LOG, node="node-03", rank=17, kind="nccl_timeout"),)  # type: ignore[attr-defined]
    w.run(seconds=15)


def hung_over(w: World) -> None:
    hung(w)
    Pace(w).work(minutes=12)


def slow(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    Pace(w).work(minutes=1)
    w.eyes = w.eyes.eyes  # type: ignore[attr-defined]
    w.fault("node-03", "sm_clock", hard=False, evidence=0.7, value=900.0, text=CLOCK, since=w.now)
    Pace(w).work(minutes=21, level=0.2, straggler="node-03", straggler_why=CLOCK)


def failed_with_log(w: World) -> None:
    failed(w)
    Pace(w).notes = (JobNote("123", w.now, LOG, node="node-03", rank=17, kind="nccl_timeout"),)
    w.run(seconds=15)


def storm(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    for number in range(1, 6):
        text = f"hottest GPU {90 + number} °C, 60 °C on its peers"
        facts = {"hard": False, "evidence": 0.62, "value": 90.0 + number, "text": text, "since": w.now}
        w.fault(f"node-0{number}", "gpu_temperature", **facts)
    w.run(seconds=30)


def blind_node(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    w.unknown("node-02")
    w.run(minutes=2)


def blind_nodes(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    for number in range(1, 5):
        w.unknown(f"node-0{number}")
    w.run(minutes=2)


def unlike_peers(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    w.fault("node-03", "sm_clock", hard=False, evidence=0.7, value=900.0, text=CLOCK, since=w.now)
    w.run(seconds=30)


def claimed(w: World) -> None:
    w.session("123")
    w.run(minutes=1)
    text = "Xid 79 (GPU has fallen off the bus) in a syslog file"
    w.fault("node-03", "xid_claimed", evidence=0.95, text=text, provenance="claimed", since=w.now)
    w.run(seconds=30)


SITUATIONS: dict[str, tuple[Callable[[World], None], str]] = {
    "gpu_fault": (gpu_fault, "approve"),
    "gpu_fault_observe": (gpu_fault, "observe"),
    "approved": (approved, "approve"),
    "survived": (survived, "approve"),
    "refused": (refused, "approve"),
    "given_up": (given_up, "approve"),
    "by_hand": (by_hand, "approve"),
    "precursor": (precursor, "approve"),
    "failed": (failed, "approve"),
    "blind": (blind, "approve"),
    "unknown_host": (unknown_host, "approve"),
    "stall": (stall, "approve"),
    "stall_over": (stall_over, "approve"),
    "hung": (hung, "approve"),
    "hung_observe": (hung_observe, "observe"),
    "hung_with_log": (hung_with_log, "approve"),
    "hung_over": (hung_over, "approve"),
    "slow": (slow, "approve"),
    "failed_with_log": (failed_with_log, "approve"),
    "storm": (storm, "approve"),
    "blind_node": (blind_node, "approve"),
    "blind_nodes": (blind_nodes, "approve"),
    "unlike_peers": (unlike_peers, "approve"),
    "claimed": (claimed, "approve"),
}


def shown(w: World) -> str:
    """The channel message with its buttons, then the story, as text."""
    incident = max(w.state.all(Incident), key=lambda i: (i.id, i.episode))
    card = incident_card(incident, w.state, w.policy, "Asia/Seoul")
    blocks = card_blocks(card)
    assert validate(blocks) == []
    events = [e for _, e in w.store.events() if type(e) in STORY and tag_of(e) == incident.tag]
    story = story_card(incident.tag, "story", [STORY[type(e)](e, w.state) for e in events])
    assert validate(card_blocks(story)) == []
    buttons = " ".join(f"[{b.text}]" for b in card.buttons)
    parts = [f"notification: {fallback(card)}", *card.paragraphs, buttons, card.footer, "-- thread", *story.paragraphs]
    assert plain(blocks)
    return re.sub(r"<!date\^\d+\^[^|]*\|([^>]*)>", r"\1", "\n\n".join(parts)) + "\n"


@pytest.mark.parametrize("name", SITUATIONS)
def test_messages_read_as_they_should(name: str, tmp_path: Path) -> None:
    play, mode = SITUATIONS[name]
    w = World(tmp_path, write_mode=mode)  # type: ignore[arg-type]
    play(w)
    text = shown(w)
    w.store.close()
    path = HERE / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
