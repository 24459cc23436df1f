"""Logs as files on a disk, followed by the real child."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.model import Attempt, Job, JobNote, LogGrowth
from bot.policy import Match, SessionRule, build
from bot.ports import JobPlace
from bot.sources.job_log import EVERY, SIGNAL, STILL, TAIL, JobLog, job_places
from bot.sources.reader import Reader
from tests.unit.test_job_lines import NODES, clock, members, step, timeout

NOW = clock("11:45:00")
ECC = "[rank12]: [2026-03-21 11:40:07] RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


@dataclass
class World:
    """One job's log and the clock."""

    log: Path
    now: int = NOW
    place: JobPlace = field(init=False)
    source: JobLog = field(init=False)

    def __post_init__(self) -> None:
        self.place = JobPlace(str(self.log), "9#0", True, NODES, clock("09:00:00"), 64)
        self.source = JobLog(Reader(30.0), (UTC,), lambda: {"9": self.place})

    def write(self, text: str, mode: str = "a") -> None:
        with self.log.open(mode) as file:
            file.write(text)
        os.utime(self.log, (self.now, self.now))

    def notes(self, later: int = 15) -> list[JobNote]:
        self.now += later
        return list(self.source.notes(self.now, {"9": self.place}))

    def problems(self) -> Mapping[str, str]:
        return self.source.problems()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "9.out")


def test_a_job_that_ended_is_told_with_its_first_failing_node(world: World) -> None:
    world.write(members() + step(10, "11:39:00") + "".join(timeout(rank) for rank in range(8)) + ECC)
    (note,) = world.notes()
    assert (note.job, note.node, note.rank, note.kind, note.hint) == ("9", "node-02", 12, "ecc", "hardware")
    assert note.at == note.since == clock("11:40:07")
    assert note.text.splitlines()[0] == "rank 12 on node-02: uncorrectable memory error of a GPU"
    assert len(note.text.splitlines()) == 3
    assert world.source.work("9").step == 10  # type: ignore[union-attr]


def test_its_node_is_marked_as_claimed(world: World) -> None:
    world.write(members() + ECC)
    (mark,) = world.source.marks(NOW - 900, NOW, ["node-01", "node-02"])
    assert (mark.node, mark.signal, mark.value, mark.provenance, mark.known) == (
        "node-02",
        SIGNAL,
        1.0,
        "claimed",
        True,
    )
    assert mark.at == clock("11:40:07") and mark.until is None and "job 9: rank 12" in mark.text
    assert world.source.marks(NOW - 900, NOW, ["node-02"]) == [mark]
    assert world.source.marks(NOW - 900, NOW, ["node-01"]) == [replace(mark, known=False)]
    assert world.source.marks(clock("11:40:08"), NOW, ["node-02"]) == []


def test_both_ends_of_a_broken_connection_are_marked(world: World) -> None:
    warn = "{0}:6:2 [3] net_ib.cc:2360 NCCL WARN NET/IB: Got completion from peer 10.0.0.7 with status=12\n"
    world.write(warn.format("node-03") + warn.format("node-06") + timeout(1))
    found = world.source.marks(0, NOW, NODES)
    assert {mark.node for mark in found} == {"node-03", "node-06"}
    assert all("between node-03 and node-06" in mark.text for mark in found)


def test_a_full_disk_marks_no_node(world: World) -> None:
    world.write(members() + "[rank9]: OSError: [Errno 28] No space left on device\n")
    assert [note.hint for note in world.notes()] == ["storage"]
    assert world.source.marks(0, world.now, NODES) == []


def test_a_run_that_is_well_tells_nothing_but_is_followed(world: World) -> None:
    world.place = replace(world.place, due=False)
    world.write(members() + ECC)
    assert world.notes() == []
    world.write("x" * (2 * TAIL) + "\n" + timeout(12))
    world.place = replace(world.place, due=True)
    (note,) = world.notes()
    assert note.node == "node-02", "where ranks run was read long before the end"


def test_only_new_bytes_are_read_and_only_now_and_then(world: World) -> None:
    world.place = replace(world.place, due=False)
    world.write(step(1, "11:00:00"))
    world.notes()
    world.write(step(2, "11:01:00"))
    world.notes()
    assert world.source.work("9").step == 1  # type: ignore[union-attr]
    world.notes(EVERY)
    assert world.source.work("9").step == 2  # type: ignore[union-attr]


def test_last_lines_that_arrive_late_are_read(world: World) -> None:
    world.write(members() + timeout(1))
    assert [note.kind for note in world.notes()] == ["nccl_timeout"]
    world.write(ECC.rstrip("\n"))  # a file may end without a line's end
    assert [note.kind for note in world.notes()] == ["nccl_timeout"]
    assert [note.kind for note in world.notes()] == ["ecc"]


def test_an_ended_log_is_left_in_peace_and_looked_at_when_the_job_hangs_again(world: World) -> None:
    world.write(timeout(1))
    for _ in range(STILL + 1):
        world.notes()
    world.write(ECC)
    assert [note.kind for note in world.notes()] == ["nccl_timeout"]
    world.place = replace(world.place, due=False)
    world.notes()
    world.place = replace(world.place, due=True)
    assert [note.kind for note in world.notes()] == ["ecc"]


def test_a_long_log_is_read_from_its_end(world: World) -> None:
    world.write("[rank3]: CUDA error: unknown error\n" + "x" * 200 + "\n" + "no failure here\n" * (TAIL // 16) + ECC)
    assert [note.kind for note in world.notes()] == ["ecc"]


def test_the_next_attempt_in_the_same_file_begins_where_the_last_one_ended(world: World) -> None:
    world.write(members() + ECC)
    assert len(world.notes()) == 1
    world.place = replace(world.place, attempt="9#1", start=clock("11:44:00"))
    world.write(step(11, "11:45:30"))
    assert world.notes() == []
    (mark,) = world.source.marks(0, world.now + 15, NODES)
    assert mark.node == "node-02", "what the last attempt told is told again"


def test_an_earlier_attempts_lines_are_known_by_their_times(world: World) -> None:
    world.place = replace(world.place, attempt="9#1", start=clock("11:44:00"))
    world.write(members() + ECC + step(11, "11:45:30"))
    assert world.notes() == []


@pytest.mark.parametrize("how", ["truncated", "replaced"])
def test_a_log_that_begins_anew(world: World, how: str) -> None:
    world.write(members() + "half a line")
    world.notes()
    if how == "replaced":
        world.log.unlink()
    world.write(ECC, "w")
    assert [note.rank for note in world.notes()] == [12]


def test_a_requeued_job_whose_cut_log_is_longer_than_before_is_read_from_its_beginning(world: World) -> None:
    """Slurm cuts it unless JobFileAppend says otherwise; a run that fails at its start writes much the same each time."""
    world.write(members() + step(10, "11:40:00"))
    assert world.notes() == []
    world.place = replace(world.place, attempt="9#1")
    world.write(ECC + "no failure here\n" * 1000, "w")
    assert [note.rank for note in world.notes()] == [12]


def test_output_and_errors_in_two_files(tmp_path: Path) -> None:
    world = World(tmp_path / "9.out")
    world.write(members())
    (tmp_path / "9.err").write_text(ECC)
    world.place = replace(world.place, path=str(tmp_path / "9.*"))
    assert [note.node for note in world.notes()] == ["node-02"]


def test_a_log_that_is_not_there_or_hangs_is_told_and_raises_nothing(world: World) -> None:
    assert world.notes() == [] and "No such file" in world.problems()["9"]
    world.write(ECC)
    assert len(world.notes()) == 1 and world.problems() == {}
    dead = JobLog(Reader(30.0, argv=("/no/program",)), (UTC,), lambda: {"9": world.place})
    assert dead.marks(0, world.now, NODES) == []
    assert "cannot be started" in dead.problems()["9"]


def test_a_line_without_a_time_is_as_old_as_its_file(world: World) -> None:
    world.write("[rank3]: RuntimeError: CUDA error: unknown error\n")
    (note,) = world.notes()
    assert (note.at, note.since) == (NOW, None)


def test_jobs_that_are_gone_are_forgotten(world: World) -> None:
    world.write(ECC)
    world.notes()
    world.source.notes(world.now, {})
    assert world.source.work("9") is None and world.problems() == {}


# -- which logs --------------------------------------------------------------------------------------------------------


def job(state: str, **more: object) -> Job:
    attempt = Attempt("9", 1, state, NODES, start=NOW - 60)
    given = {"id": "9", "name": "gpt", "user": "kim", "state": state, "node_count": 8, "gpus_per_node": 8, **more}
    return Job(**{"attempts": (Attempt("9", 0, "FAILED", NODES, start=1, end=2), attempt), **given})  # type: ignore[arg-type]


POLICY = build(sessions=[SessionRule(match=Match(name="gpt"), log="/logs/$user/$session/$name-$job.*")])


def places(job: Job, hanging: tuple[str, ...] = ()) -> Mapping[str, JobPlace]:
    return job_places([job], POLICY, {"9": "session-9"}.get, hanging)


@pytest.mark.parametrize(
    ("state", "hanging", "due"), [("RUNNING", (), False), ("RUNNING", ("9",), True), ("FAILED", (), True)]
)
def test_a_log_is_due_when_its_job_ended_or_hangs(state: str, hanging: tuple[str, ...], due: bool) -> None:
    found = places(job(state), hanging)
    assert found == {"9": JobPlace("/logs/kim/session-9/gpt-9.*", "9#1", due, NODES, NOW - 60, 64)}


def test_no_log_of_jobs_without_a_rule_or_a_start() -> None:
    assert places(job("RUNNING", name="other")) == {}
    assert places(job("RUNNING", name="gpt", attempts=())) == {}
    assert places(job("RUNNING", user="../..")) == {}


def test_a_pending_attempt_leaves_the_last_one_to_be_read() -> None:
    waiting = job(
        "PENDING", attempts=(Attempt("9", 0, "FAILED", NODES, start=1, end=2), Attempt("9", 1, "PENDING", start=9))
    )
    assert places(waiting)["9"].attempt == "9#0" and places(waiting)["9"].due


def test_the_day_of_these_logs() -> None:
    assert datetime.fromtimestamp(NOW, UTC).date().isoformat() == "2026-03-21"


# -- whether it grows --------------------------------------------------------------------------------------------------


def test_a_log_that_is_written_to_gets_on(world: World) -> None:
    world.write("loading shards\n")
    world.notes()
    assert grown(world) == LogGrowth("9#0", looked=NOW + 15, moved=NOW, times=0, longest=0)
    world.now += 100
    world.write("still loading\n")
    world.notes()
    assert grown(world) == LogGrowth("9#0", looked=NOW + 130, moved=NOW + 115, times=1, longest=115)
    world.notes(EVERY)
    assert grown(world) == LogGrowth("9#0", looked=NOW + 130 + EVERY, moved=NOW + 115, times=1, longest=115)


def test_where_it_tells_steps_only_a_new_step_gets_on(world: World) -> None:
    for number in (10, 20, 20, 20, 30):
        world.write(step(number, "11:39:00"))
        world.notes(60)
    assert grown(world) == LogGrowth("9#0", looked=world.now, moved=NOW + 240, times=2, longest=180, step=30)


def test_steps_are_less_frequent_than_the_lines_before_them(world: World) -> None:
    for _ in range(3):
        world.write("loading shards\n")
        world.notes(10)
    world.write(step(10, "11:39:00"))
    world.notes(60)
    assert grown(world) == LogGrowth("9#0", looked=world.now, moved=NOW + 30, times=0, longest=0, step=10)


def test_another_clock_than_ours_moves_no_time_past_our_looks(world: World) -> None:
    for ahead in (3600, -3600):
        world.now += ahead
        world.write("a line\n")
        world.now -= ahead
        world.notes(60)
    assert grown(world) == LogGrowth("9#0", looked=NOW + 120, moved=NOW + 120, times=1, longest=60)


def test_the_next_attempt_knows_how_long_the_last_one_paused_and_nothing_else(world: World) -> None:
    for _ in range(3):
        world.write("a line\n")
        world.notes(100)
    world.place = replace(world.place, attempt="9#1")
    world.write("a line\n")
    world.notes()
    assert grown(world) == LogGrowth("9#1", looked=world.now, moved=world.now - 15, times=0, longest=100)


def test_a_log_that_cannot_be_read_tells_nothing_of_growth(world: World) -> None:
    world.write("a line\n")
    world.notes()
    world.log.unlink()
    world.notes()
    assert world.source.growth() == []


def grown(world: World) -> LogGrowth:
    (found,) = world.source.growth()
    return found
