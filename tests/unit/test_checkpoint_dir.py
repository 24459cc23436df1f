"""Directories as trainers leave them, read by the real child."""

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.errors import SourceError, Unreachable
from bot.model import Checkpoint, Job
from bot.policy import CheckpointRule, Match, SessionRule, build
from bot.sources.checkpoint_dir import DirectoryCheckpoints, DirectoryPlace, Save, directory_places, step_of
from bot.sources.checkpoints import FirstThatKnows
from bot.sources.paths import expand
from bot.sources.reader import Reader

T = 1_700_000_000  # long before these files are made
NOW = 4_000_000_000  # long after
NAMES = {"9": ("9",)}


def source(path: Path | str, marker: str = "") -> DirectoryCheckpoints:
    return DirectoryCheckpoints(Reader(30.0), lambda: {"9": DirectoryPlace(str(path), marker)})


def saves(path: Path | str, marker: str = "", at: int = NOW) -> list[Save]:
    return source(path, marker).saves(at, ["9"])["9"]


def newest(path: Path | str, marker: str = "", at: int = NOW) -> Checkpoint | None:
    return next(iter(source(path, marker).checkpoints(at, NAMES)), None)


def put(path: Path, at: int, data: bytes | str = b"x" * 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    os.utime(path, (at, at))
    return path


def shards(directory: Path, at: int, count: int = 3) -> Path:
    for number in range(count):
        put(directory / f"rank_{number}.distcp", at + number)
    return directory


def torch_file(path: Path, at: int) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"x" * 100_000)
    os.utime(path, (at, at))
    return path.read_bytes()


# -- what is complete --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tracker", "text", "directory", "step"),
    [
        ("latest", "global_step1200", "global_step1200", 1200),
        ("latest_checkpointed_iteration.txt", "1200\n", "iter_0001200", 1200),
        ("global_step1200.done", "", "global_step1200", 1200),
    ],
)
def test_the_trainers_own_word_tells_the_newest(
    tmp_path: Path, tracker: str, text: str, directory: str, step: int
) -> None:
    shards(tmp_path / directory, T)
    shards(tmp_path / directory.replace("12", "13"), T + 900)  # half written: the trainer has not named it yet
    put(tmp_path / tracker, T + 60, text)
    (found,) = saves(tmp_path)
    assert (found.step, found.completed, found.files, found.bytes) == (step, T + 60, 3, 30)
    assert found.path == str(tmp_path / directory) and found.by == tracker
    assert newest(tmp_path) == Checkpoint("9", step, found.started, T + 60)


def test_a_link_to_the_newest(tmp_path: Path) -> None:
    shards(tmp_path / "checkpoint-1200", T)
    (tmp_path / "latest").symlink_to("checkpoint-1200")
    os.utime(tmp_path / "latest", (T + 60, T + 60), follow_symlinks=False)
    (found,) = saves(tmp_path)
    assert (found.step, found.completed) == (1200, T + 60)


def test_a_named_checkpoint_that_is_gone_was_made_all_the_same(tmp_path: Path) -> None:
    put(tmp_path / "latest", T + 60, "global_step1200")
    (found,) = saves(tmp_path)
    assert (found.step, found.completed, found.bytes) == (1200, T + 60, None)


@pytest.mark.parametrize("marker", [".metadata", "COMPLETED", "save.done"])
def test_the_file_written_last_within_a_checkpoint(tmp_path: Path, marker: str) -> None:
    put(shards(tmp_path / "step-100", T) / marker, T + 60)
    put(shards(tmp_path / "step-200", T + 600) / marker, T + 660)
    shards(tmp_path / "step-300", T + 1200)
    assert [(s.step, s.completed, s.by) for s in saves(tmp_path)] == [(100, T + 60, marker), (200, T + 660, marker)]


def test_a_marker_of_a_part_tells_nothing_of_the_whole(tmp_path: Path) -> None:
    put(shards(tmp_path / "checkpoint-100" / "model", T) / ".metadata", T + 60)
    assert saves(tmp_path) == []


def test_a_marker_of_the_sites_is_the_only_one_that_counts(tmp_path: Path) -> None:
    put(shards(tmp_path / "checkpoint-100", T) / "trainer_state.json", T + 60)
    put(shards(tmp_path / "checkpoint-200", T) / ".metadata", T + 160)
    assert [s.step for s in saves(tmp_path, "trainer_state.json")] == [100]


def test_a_checkpoint_renamed_once_it_was_whole(tmp_path: Path) -> None:
    shards(tmp_path / "checkpoint-1300.tmp", T + 900)
    shards(tmp_path / "tmp-checkpoint-1200", T)
    (tmp_path / "tmp-checkpoint-1200").rename(tmp_path / "checkpoint-1200")
    (found,) = saves(tmp_path)
    assert (found.step, found.completed, found.by) == (1200, T + 2, "rename")


@pytest.mark.parametrize(
    "name",
    ["step100.tmp", "tmp_step100", "step100.partial", ".step100", "step100.incomplete", "step100~", "step100_tmp"],
)
@pytest.mark.parametrize("marker", ["", "rename"])
def test_a_name_that_says_unfinished(tmp_path: Path, name: str, marker: str) -> None:
    shards(tmp_path / "other", T).rename(tmp_path / name)
    assert saves(tmp_path, marker) == []


def test_a_checkpoint_written_in_place_counts_only_where_the_site_says_so(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoint-1200"
    directory.mkdir()
    for number in range(3):
        (directory / f"{number}.bin").write_bytes(b"x")
    assert saves(tmp_path) == []
    assert [s.step for s in saves(tmp_path, "rename")] == [1200]


def test_a_file_of_torch_is_whole_when_its_end_is_there(tmp_path: Path) -> None:
    whole = torch_file(tmp_path / "epoch=3-step=1200.ckpt", T)
    put(tmp_path / "epoch=3-step=1300.ckpt", T + 60, whole[:-2000])
    (found,) = saves(tmp_path)
    assert (found.step, found.started, found.completed, found.bytes) == (1200, None, T, len(whole))


@pytest.mark.parametrize(
    "make", [lambda p: p.mkdir(), lambda p: None, lambda p: (p / "checkpoint-100").mkdir(parents=True)]
)
def test_nothing_there_is_not_measured(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "run")
    seen = source(tmp_path / "run", "rename")
    assert seen.checkpoints(NOW, NAMES) == [] and seen.problem == ""


@pytest.mark.parametrize("pattern", ["", "*", "x"])
def test_a_directory_that_cannot_be_read_is_told(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "run").symlink_to(tmp_path / "run")
    seen = source(tmp_path / "run" / pattern)
    assert seen.checkpoints(NOW, NAMES) == []
    assert seen.problem.startswith("Too many levels of symbolic links: " + str(tmp_path / "run"))


# -- times and order ---------------------------------------------------------------------------------------------------


def test_after_a_rollback_the_newest_is_the_one_completed_last(tmp_path: Path) -> None:
    put(shards(tmp_path / "step-900", T) / ".metadata", T + 60)
    put(shards(tmp_path / "step-300", T + 3600) / ".metadata", T + 3660)
    found = newest(tmp_path)
    assert found and (found.step, found.completed) == (300, T + 3660)


def test_a_save_began_with_its_first_file(tmp_path: Path) -> None:
    put(shards(tmp_path / "step-900", T) / ".metadata", T + 60)
    (found,) = saves(tmp_path)
    assert found.started == T


def test_a_copied_file_of_last_year_did_not_begin_the_save(tmp_path: Path) -> None:
    directory = tmp_path / "step-900"
    directory.mkdir()
    (directory / "0.bin").write_bytes(b"x")
    put(directory / "tokenizer.json", T)
    (directory / ".metadata").touch()
    (found,) = saves(tmp_path)
    assert found.started is not None and found.started > T + 1000


def test_a_file_servers_clock_ahead_of_ours(tmp_path: Path) -> None:
    put(shards(tmp_path / "step-900", T) / ".metadata", T + 60)
    seen = source(tmp_path)
    first = seen.checkpoints(T + 20, NAMES)
    assert first == [Checkpoint("9", 900, T - 40, T + 20)]
    assert seen.checkpoints(T + 35, NAMES) == first, "the same save stays the same"


def test_more_checkpoints_than_are_looked_into(tmp_path: Path) -> None:
    for number in range(30):
        put(shards(tmp_path / f"step-{number}", T, 1) / ".metadata", T + number)
        os.utime(tmp_path / f"step-{number}", (T + number, T + number))
    assert newest(tmp_path) == Checkpoint("9", 29, T, T + 29)


def test_a_pattern_of_directories(tmp_path: Path) -> None:
    put(shards(tmp_path / "a" / "step-1", T) / ".metadata", T + 5)
    put(shards(tmp_path / "b" / "step-2", T) / ".metadata", T + 50)
    assert [s.step for s in saves(tmp_path / "*")] == [1, 2]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("global_step1200", 1200),
        ("iter_0001200", 1200),
        ("step=1200.ckpt", 1200),
        ("epoch=3-step=1200.ckpt", 1200),
        ("epoch=3-step=1200-v1.ckpt", 1200),
        ("checkpoint-1200", 1200),
        ("step_1200", 1200),
        ("ckpt-1200.pt", 1200),
        ("0001200", 1200),
        ("iter_0000000", 0),
        ("last.ckpt", None),
        ("release", None),
        ("epoch=3", None),
        ("step" + "9" * 5000, None),
    ],
)
def test_the_step_in_a_name(name: str, step: int | None) -> None:
    assert step_of(name) == step


# -- a storage that does not answer ------------------------------------------------------------------------------------


def test_no_storage_that_answers_is_an_error(tmp_path: Path) -> None:
    broken = DirectoryCheckpoints(Reader(30.0, argv=("/no/program",)), lambda: {"9": DirectoryPlace("/data")})
    with pytest.raises(Unreachable):
        broken.checkpoints(NOW, NAMES)
    assert broken.problem.startswith("the reading child cannot be started")


def test_jobs_without_a_directory_ask_nobody() -> None:
    assert DirectoryCheckpoints(Reader(30.0, argv=("/no/program",)), dict).checkpoints(NOW, NAMES) == []


# -- several sources ---------------------------------------------------------------------------------------------------


@dataclass
class Told:
    """A source that tells what it is given."""

    saves: Sequence[Checkpoint] = ()
    error: SourceError | None = field(default=None)

    def checkpoints(self, at: int, jobs: Mapping[str, Sequence[str]]) -> Sequence[Checkpoint]:
        if self.error:
            raise self.error
        return self.saves


def both(*sources: Told) -> list[Checkpoint]:
    return list(FirstThatKnows(sources).checkpoints(NOW, NAMES))


def test_of_each_job_the_save_completed_last() -> None:
    one = Told([Checkpoint("1", 900, None, T), Checkpoint("2", 5, None, T)])
    two = Told([Checkpoint("1", 300, None, T + 5), Checkpoint("3", None, None, T)])
    assert both(one, two) == [
        Checkpoint("1", 300, None, T + 5),
        Checkpoint("2", 5, None, T),
        Checkpoint("3", None, None, T),
    ]


def test_one_save_told_by_two_clocks_is_the_firsts() -> None:
    first, second = Checkpoint("1", 900, T - 9, T), Checkpoint("1", 900, T - 8, T + 3)
    assert both(Told([first]), Told([second])) == [first]
    again = Checkpoint("1", 900, T + 7000, T + 7200)
    assert both(Told([first]), Told([again])) == [again]


def test_a_time_is_worth_more_than_none() -> None:
    assert both(Told([Checkpoint("1", 900, None, None)]), Told([Checkpoint("1", 300, None, T)]))[0].step == 300
    assert both(Told([Checkpoint("1", 300, None, T)]), Told([Checkpoint("1", 900, None, None)]))[0].step == 300
    assert both(Told([Checkpoint("1", 300, None, None)]), Told([Checkpoint("1", 900, None, None)]))[0].step == 900


def test_one_source_that_fails_is_told_and_two_are_an_error() -> None:
    gone = Told(error=Unreachable("files", "/data has been hanging"))
    combined = FirstThatKnows([gone, Told([Checkpoint("1", 1, None, T)])])
    assert len(combined.checkpoints(NOW, NAMES)) == 1 and "hanging" in combined.problem
    with pytest.raises(Unreachable):
        FirstThatKnows([gone, gone]).checkpoints(NOW, NAMES)


# -- paths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("gpt", "/ckpt/kim/gpt-9"),
        ("gpt*", "/ckpt/kim/gpt[*]-9"),
        ("$user", "/ckpt/kim/$user-9"),
        ("..", "/ckpt/kim/..-9"),
        ("a/../../etc", None),
        ("", None),
        ("a\nb", None),
        ("a\x00b", None),
    ],
)
def test_a_jobs_name_stays_in_its_place(name: str, path: str | None) -> None:
    assert expand("/ckpt/$user/$name-$job", {"user": "kim", "name": name, "job": "9", "session": "session-9"}) == path


@pytest.mark.parametrize(("user", "name"), [("..", "x"), (".", "x"), (".", ".")])
def test_no_part_of_a_path_leads_up(user: str, name: str) -> None:
    pattern = "/ckpt/$user$name" if user == name else "/ckpt/$user/$name"
    assert expand(pattern, {"user": user, "name": name}) is None


@pytest.mark.parametrize("pattern", ["relative/$job", "/a/../b", "/a/$jobs", "/a/$", "~/x"])
def test_a_pattern_that_cannot_be_meant_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is no path pattern"):
        CheckpointRule(directory=pattern)


def test_only_jobs_under_care_with_a_rule_have_a_directory() -> None:
    rule = SessionRule(match=Match(name="gpt*"), checkpoint=CheckpointRule(directory="/ckpt/$session", marker="DONE"))
    jobs = [Job("9", "gpt", "kim", "RUNNING"), Job("10", "gpt", "kim", "RUNNING"), Job("11", "other", "kim", "RUNNING")]
    names = {"9": "session-9", "11": "session-11"}
    found = directory_places(jobs, build(sessions=[rule]), names.get)
    assert found == {"9": DirectoryPlace("/ckpt/session-9", "DONE")}
