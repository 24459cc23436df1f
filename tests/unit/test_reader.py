"""The child is the real one. Where it must hang, it is a program stopped by SIGSTOP: like one that waits for a dead file
server, it does nothing, and does not even end when its parent closes the pipe."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from bot.errors import BadReply, Unreachable
from bot.sources.reader import CHILD, Reader, data_of, mounts, storage_of

T = TypeVar("T")
ENOUGH = 30.0  # s: a deadline that a healthy child never needs
SOON = 0.3


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    """While this file is there, children stop before they begin."""
    (tmp_path / "hang").touch()
    return tmp_path / "hang"


@pytest.fixture
def hanging(flag: Path) -> Iterator[Reader]:
    stop = f'[ -e {flag} ] && kill -STOP $$; exec "$@"'
    reader = Reader(SOON, argv=("/bin/sh", "-c", stop, "sh", *CHILD))
    yield reader
    reader.close()


def tail(path: Path | str, known: dict[str, list[int]] | None = None, limit: int = 1000) -> dict[str, object]:
    return {"verb": "tail", "path": str(path), "known": known or {}, "limit": limit, "newest": 3}


def texts(answer: object) -> list[bytes]:
    assert isinstance(answer, dict), answer
    return [data_of(file) for file in answer["files"]]


def process_of(reader: Reader) -> subprocess.Popen[bytes]:
    (found,) = reader._hanging.values()
    return found.process


def test_a_files_end_and_then_only_what_is_new(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 5000 + b"end")
    reader = Reader(ENOUGH)
    (first,) = reader.ask("/", [tail(log, limit=10)])
    assert first and texts(first) == [b"xxxxxxxend"] and first["files"][0]["begin"] == 4993
    with log.open("ab") as more:
        more.write(b"more")
    known = {str(log): [first["files"][0]["inode"], 5003, first["files"][0]["seam"]]}
    (second,) = reader.ask("/", [tail(log, known)])
    assert texts(second) == [b"more"]


def test_a_file_that_was_replaced_or_cut_is_read_anew(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"short")
    inode = log.stat().st_ino
    cut, replaced = Reader(ENOUGH).ask(
        "/", [tail(log, {str(log): [inode, 900, 0]}), tail(log, {str(log): [inode + 1, 0, 0]})]
    )
    assert texts(cut) == texts(replaced) == [b"short"]


@pytest.mark.parametrize("size", [5, 8])
def test_a_file_that_was_cut_and_has_grown_as_long_again_is_read_anew(tmp_path: Path, size: int) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first")
    reader = Reader(ENOUGH)
    (before,) = reader.ask("/", [tail(log)])
    assert before
    log.write_bytes(b"another!"[:size])
    known = {str(log): [before["files"][0]["inode"], 5, before["files"][0]["seam"]]}
    (after,) = reader.ask("/", [tail(log, known)])
    assert texts(after) == [b"another!"[:size]] and after and after["files"][0]["fresh"]


def test_a_pattern_finds_the_files_written_last(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"job-{number}.err"
        path.write_text(str(number))
        os.utime(path, (number, number))
    (found,) = Reader(ENOUGH).ask("/", [tail(tmp_path / "job-*.err")])
    assert texts(found) == [b"4", b"3", b"2"]


@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_what_is_no_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    assert Reader(ENOUGH).ask("/", [tail(path)]) == [{"error": f"no such file: {path}", "missing": True}]


def test_each_question_gets_its_answer_or_its_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    absent = {"verb": "saves", "path": str(tmp_path / "no"), "steps": "", "trackers": [], "marks": [], "entries": 1}
    first, loop, missing = Reader(ENOUGH).ask(
        "/", [tail(tmp_path / "a"), tail(tmp_path / "loop"), {**absent, "newest": 1}]
    )
    assert texts(first) == [b"a"]
    assert loop and "symbolic links" in loop["error"] and not loop["missing"]
    assert missing and missing["missing"] and str(tmp_path / "no") in missing["error"]


def test_more_questions_than_a_pipe_holds(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    answers = Reader(ENOUGH).ask("/", [tail(tmp_path / "a", {"x" * 500: [1, 1]})] * 1000)
    assert len(answers) == 1000 and all(texts(answer) == [b"a"] for answer in answers)


# -- a storage that hangs ----------------------------------------------------------------------------------------------


def test_the_caller_goes_on_at_the_deadline_and_then_at_once(hanging: Reader, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with pytest.raises(Unreachable, match="/data did not answer within 0.3 s"):
        hanging.ask("/data", [tail(tmp_path / "a")])
    process = process_of(hanging)
    begin = time.monotonic()
    for _ in range(20):
        with pytest.raises(Unreachable, match="/data has been hanging since 20"):
            hanging.ask("/data", [tail(tmp_path / "a")])
    assert time.monotonic() - begin < 20 * SOON / 2
    assert process_of(hanging) is process and process.poll() is None, "no second child is sent there"
    assert list(hanging.hanging()) == ["/data"]


def test_another_storage_is_read_meanwhile(hanging: Reader, flag: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with pytest.raises(Unreachable):
        hanging.ask("/data", [tail(tmp_path / "a")])
    flag.unlink()
    hanging.deadline = ENOUGH
    assert texts(hanging.ask("/home", [tail(tmp_path / "a")])[0]) == [b"a"]
    with pytest.raises(Unreachable):
        hanging.ask("/data", [tail(tmp_path / "a")])


def test_when_the_storage_is_back_it_is_read_again(hanging: Reader, flag: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with pytest.raises(Unreachable):
        hanging.ask("/data", [tail(tmp_path / "a")])
    process = process_of(hanging)
    flag.unlink()
    os.kill(process.pid, signal.SIGCONT)
    process.wait(ENOUGH)
    hanging.deadline = ENOUGH
    assert hanging.hanging() == {}
    assert texts(hanging.ask("/data", [tail(tmp_path / "a")])[0]) == [b"a"]


def test_what_was_answered_before_the_hang_counts(tmp_path: Path) -> None:
    """A program that answers one question and then hangs."""
    half = "import os, signal; print('{\"files\": []}', flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    reader = Reader(2.0, argv=(sys.executable, "-c", half))
    try:
        assert reader.ask("/data", [tail("/a"), tail("/b")]) == [{"files": []}, None]
        assert list(reader.hanging()) == ["/data"]
    finally:
        reader.close()


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """A parent that is killed closes nothing itself; its child waits in a read that never ends."""
    child = tmp_path / "child.py"
    child.write_text(Path(CHILD[-1]).read_text() + "\n    os.read(os.pipe()[0], 1)\n")
    parent = (
        "from bot.sources.reader import Reader\n"
        f"reader = Reader(30.0, argv=({sys.executable!r}, {str(child)!r}))\n"
        "import threading, time\n"
        "threading.Thread(target=reader.ask, args=('/', [{'verb': 'tail', 'path': '/no', 'known': {},"
        " 'limit': 1, 'newest': 1}]), daemon=True).start()\n"
        "time.sleep(1000)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent])
    try:
        pid = _until(lambda: _child_of(process.pid))
    finally:
        process.kill()
        process.wait()
    assert _until(lambda: not Path(f"/proc/{pid}").exists() or _zombie(pid))


def _child_of(pid: int) -> int | None:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for task in Path(f"/proc/{pid}/task").iterdir():
        listed += (task / "children").read_text().split()
    return int(listed[0]) if listed else None


def _zombie(pid: int | None) -> bool:
    return " Z " in Path(f"/proc/{pid}/stat").read_text()


def _until(check: Callable[[], T]) -> T:
    end = time.monotonic() + ENOUGH
    while not (found := check()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


# -- a child that breaks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("print('no json')", "wrote no JSON"),
        ("pass", "ended after 0 of 1 answers"),
        ("import os; os.abort()", "ended after 0 of 1 answers"),
    ],
)
def test_a_broken_child_is_told(program: str, words: str) -> None:
    with pytest.raises(BadReply, match=words):
        Reader(ENOUGH, argv=(sys.executable, "-c", program)).ask("/data", [tail("/a")])


def test_a_child_that_says_too_much_is_ended() -> None:
    endless = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
    with pytest.raises(BadReply, match="ended after 0 of 1"):
        Reader(ENOUGH, argv=(sys.executable, "-c", endless), most=1 << 20).ask("/data", [tail("/a")])


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(Unreachable, match="cannot be started"):
        Reader(ENOUGH, argv=("/no/such/program",)).ask("/data", [tail("/a")])


def test_the_child_inherits_nothing() -> None:
    """No open file of ours beyond its three pipes, no environment but the language."""
    program = (
        "import os, json\n"
        "print(json.dumps({'files': sorted(int(n) for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')),"
        " 'env': sorted(os.environ)}))"
    )
    with Path(__file__).open() as held:
        os.set_inheritable(held.fileno(), True)
        (found,) = Reader(ENOUGH, argv=(sys.executable, "-c", program)).ask("/", [{}])
    assert found and found["files"] == [0, 1, 2]
    assert "HOME" not in found["env"] and "PATH" not in found["env"], json.dumps(found)


# -- which storage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "storage"),
    [
        ("/mnt/ckpt/run/1", "/mnt/ckpt"),
        ("/mnt/ckpt", "/mnt/ckpt"),
        ("/mnt/ckpt2/run", "/mnt"),
        ("/mnt/ckpt/scratch/x", "/mnt/ckpt/scratch"),
        ("/mnt/x/../ckpt/run", "/mnt/ckpt"),
        ("/data/run/*.log", "/data"),
        ("/home/a", "/home"),
    ],
)
def test_a_path_lies_on_the_longest_mount_point(path: str, storage: str) -> None:
    assert storage_of(path, ["/", "/mnt", "/mnt/ckpt", "/mnt/ckpt/scratch"]) == storage


def test_the_mount_points_of_this_machine() -> None:
    assert "/" in mounts() and "/proc" in mounts()
