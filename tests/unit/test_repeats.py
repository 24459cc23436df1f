"""Which sightings of an application's Xid speak against one GPU."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot import policy as policies
from bot.errors import Unreachable
from bot.model import AppXid, Mark, NodeScore, Observation, Reading, Sighting
from bot.repeats import SIGNAL, judged, repeated
from bot.sources.kernel_log import GpuXid, kernel_log
from bot.state import Draft, State
from tests.unit.test_observe import NOW, Eyes, problems, reading

POLICY = policies.build()
NUMBERS = POLICY.numbers.repeats
AT = 1_800_000_000
DAY = 86_400


def sighting(run: str, owner: str, days_ago: float = 1, gpu: str = "3b", uuid: str = "", **facts: Any) -> Sighting:
    xid = AppXid("node-01", gpu, 31, int(AT - days_ago * DAY), uuid)
    return replace(Sighting(xid, f"{run}#0", run, f"program-{run}", owner, 0, 64), **facts)


def gpus(*sightings: Sighting) -> list[str]:
    return [one.sightings[0].xid.gpu for one in repeated(sightings, AT, NUMBERS)]


def test_two_owners_within_a_week() -> None:
    assert gpus(sighting("a", "alice", 6), sighting("b", "bob", 1)) == ["3b"]
    assert gpus(sighting("a", "alice", 8), sighting("b", "bob", 1)) == []


def test_two_programs_of_one_owner() -> None:
    assert gpus(sighting("a", "alice"), sighting("b", "alice", 2)) == ["3b"]
    assert gpus(sighting("a", "alice"), sighting("b", "alice", 2, program="program-a")) == []


def test_one_program_with_its_ranks_moved() -> None:
    first, again = sighting("a", "alice", 2), sighting("a", "alice", 1, attempt="a#1")
    assert gpus(first, again) == []
    assert gpus(first, replace(again, place=1)) == ["3b"]


def test_other_gpus_and_other_codes_are_other_stories() -> None:
    assert gpus(sighting("a", "alice"), sighting("b", "bob", gpu="5c")) == []
    other = sighting("b", "bob")
    assert gpus(sighting("a", "alice"), replace(other, xid=replace(other.xid, code=13))) == []


def test_a_part_that_was_replaced_inherits_nothing() -> None:
    assert gpus(sighting("a", "alice", 2, uuid="GPU-1"), sighting("b", "bob", 1, uuid="GPU-2")) == []
    assert gpus(sighting("a", "alice", 2, uuid="GPU-1"), sighting("b", "bob", 1)) == ["3b"]


@pytest.mark.parametrize(("of", "others", "found"), [
    (64, 2, ["3b"]), (64, 3, ["3b"]), (64, 4, []),  # a twentieth of 64 GPUs is 3
    (8, 0, ["3b"]), (8, 1, []),
    (2, 0, []), (1, 0, []),  # the only one, or half of them, is not one of few
])  # fmt: skip
def test_few_gpus_of_the_run_show_it(of: int, others: int, found: list[str]) -> None:
    """One too many, and it is the program."""
    more = [sighting("b", "bob", gpu=f"{n}0", gpus=of) for n in range(others)]
    limit = [*more, sighting("b", "bob", gpus=of)]
    assert gpus(sighting("a", "alice", 2), *limit) == found


def test_what_has_just_happened_waits_for_the_other_ranks() -> None:
    assert gpus(sighting("a", "alice"), sighting("b", "bob", 0.001)) == []


# -- as a part of the score --------------------------------------------------------------------------------------------


def seen_with(score: NodeScore | None, policy: policies.Policy = POLICY, ago: int = 600) -> Observation:
    state = State()
    state.put(sighting("a", "alice"))
    state.put(sighting("b", "bob", ago / DAY))
    scores = {score.node: score} if score else {}
    return judged(Draft(state, AT, ""), Observation(AT, AT, None, scores), policy)


def test_it_joins_the_score_of_its_node() -> None:
    seen = seen_with(None)
    assert seen.scores is not None and (seen.scores["node-01"].score, seen.scores["node-01"].sudden) == (0.65, True)
    beside = Reading("node-01", "pcie_replay", "bad", 0.5)
    other = seen_with(NodeScore("node-01", 0.5, False, (beside,)))
    assert other.scores is not None and other.scores["node-01"].score == 0.79, "soft evidence stops at its cap"
    assert [r.signal for r in other.scores["node-01"].reasons] == [SIGNAL, "pcie_replay"]


def test_it_takes_nothing_from_a_hard_score() -> None:
    hard = NodeScore("node-01", 1.0, True, (Reading("node-01", "xid_reset", "bad", 1.0, hard=True),))
    seen = seen_with(hard)
    assert seen.scores is not None and (seen.scores["node-01"].score, seen.scores["node-01"].hard) == (1.0, True)


def test_it_lasts_for_an_hour_and_a_site_can_silence_it() -> None:
    assert seen_with(None, ago=4500).readings == ()
    assert seen_with(None, policies.build(signal_overrides={SIGNAL: {"weight": "0"}})).readings == ()


# -- from the kernel log -----------------------------------------------------------------------------------------------


@dataclass
class Log:
    rows: Sequence[GpuXid] = ()
    broken: bool = False
    name: str = "kernel log"
    signals: Collection[str] = ()

    def marks(self, since: int, now: int, nodes: Collection[str]) -> Sequence[Mark]:
        if self.broken:
            raise Unreachable("kernel log", "was not read within 8 s")
        return ()

    def application(self, since: int, now: int, nodes: Collection[str]) -> Sequence[GpuXid]:
        return self.rows


def row(node: str, known: bool = True, pci: str | None = "0000:3b:00", uuid: str | None = None) -> GpuXid:
    return GpuXid(node, known, NOW - 60, NOW - 60, 31, pci, uuid, None, 4711, "python", "kernel")


def test_a_look_brings_the_xids_of_known_nodes_and_named_gpus() -> None:
    eyes = Eyes()
    eyes.observer.logs = (
        Log([row("node-01"), row("strange", known=False), row("node-02", pci=None), row("node-02", pci=None, uuid="GPU-7")]),
    )  # fmt: skip
    seen = eyes.look()
    assert seen.app_xids == (
        AppXid("node-01", "0000:3b:00", 31, NOW - 60),
        AppXid("node-02", "GPU-7", 31, NOW - 60, "GPU-7"),
    )
    assert reading(seen, "node-01", SIGNAL).state == "good"


def test_the_kernel_log_itself_brings_them(tmp_path: Path) -> None:
    told = datetime.fromtimestamp(NOW - 60, UTC).isoformat()
    line = "kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, Ch 00000010, intr 00000000. MMU Fault"
    (tmp_path / "kern.log").write_text(f"{told} node-01 {line}\n{told} elsewhere {line}\n")
    eyes = Eyes()
    eyes.observer.logs = (kernel_log(Nowhere(), UTC, syslog=[str(tmp_path / "kern.log")]),)
    (seen,) = eyes.look().app_xids
    assert (seen.node, seen.code, seen.at, seen.provenance) == ("node-01", 31, NOW - 60, "claimed")
    assert "3b:00" in seen.gpu


class Nowhere:
    """Remembers nothing."""

    def get(self, name: str) -> str | None:
        return None

    def put(self, name: str, value: str) -> None:
        return


def test_a_log_that_cannot_be_read_leaves_it_unknown() -> None:
    eyes = Eyes()
    eyes.observer.logs = (Log([row("node-01")], broken=True),)
    seen = eyes.look()
    assert seen.app_xids == () and problems(seen)["kernel log"]
    assert reading(seen, "node-01", SIGNAL).state == "unknown"
