"""What `make bench` measures with; the measuring itself takes minutes."""

from __future__ import annotations

from pathlib import Path

from bench.history import BACK, NODES, SAVES, SCRAPE, _lines, samples
from bench.run import first_incident, in_turns, told
from bot import events as ev
from bot.model import Incident
from store.store import Store
from tests.real.exporter import Exporter


def test_both_sides_are_measured_in_turns_after_a_round_that_does_not_count() -> None:
    calls: list[str] = []
    ours, theirs = in_turns(lambda: calls.append("a"), lambda: calls.append("b"), pairs=3)
    assert "".join(calls) == "baabbaab"
    assert ours >= 0 and theirs >= 0
    assert told(0.3, 0.2) == {"ratio": 1.5, "ours_ms": 300.0, "theirs_ms": 200.0}


def test_the_history_is_whole() -> None:
    exporter = Exporter(len(NODES))
    try:
        found = samples(exporter)
    finally:
        exporter.stop()
    assert len(found["up"]) == 2 * len(NODES)
    assert len(found["DCGM_FI_DEV_GPU_TEMP"]) == 8 * len(NODES)
    assert SAVES.keys() <= found.keys()
    lines = list(_lines("up", {'job="dcgm"': "1"}, {}, 3000))
    assert lines[0] == 'up{job="dcgm"} 1 1200\n' and len(lines) == (BACK - 300) // SCRAPE + 1


def test_the_first_incident_is_counted_from_the_first_event(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "x.db")
    store.append([ev.Paused(100, "U1", ""), ev.IncidentOpened(280, Incident(1, 1, "gpu_fault", "node-01", 280), "p")])
    store.close()
    assert first_incident(tmp_path / "x.db") == 180
