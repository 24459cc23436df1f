"""The messages as people read them. `UPDATE_GOLDEN=1` writes them anew; read the difference before you commit it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.compose import STORY, incident_card, story_card
from bot.model import Holder, Incident
from store.store import tag_of
from templates.blocks import card_blocks, fallback, plain
from templates.validate import validate
from tests.scenarios.world import World

HERE = Path(__file__).parent


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
