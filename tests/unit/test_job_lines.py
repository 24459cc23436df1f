"""The lines are written after the forms that torch 1.12 to 2.8, torchrun, NCCL, Slurm and the usual trainers use."""

import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from bot.signals.job_kinds import FORMS, KINDS, WORDS
from bot.signals.job_lines import JobFinding, JobLines
from bot.signals.job_times import when
from bot.signals.job_verdict import JobVerdict, verdict

NOW = int(datetime(2026, 3, 21, 12, 0, tzinfo=UTC).timestamp())
NODES = tuple(f"node-{n:02}" for n in range(1, 9))


def clock(text: str) -> int:
    """Seconds of `HH:MM:SS` on the day of the logs here."""
    return int(datetime.fromisoformat(f"2026-03-21T{text}+00:00").timestamp())


def read(text: str | bytes, **known: object) -> JobLines:
    log = JobLines(NOW, nodes=NODES, **known)  # type: ignore[arg-type]
    log.feed(text if isinstance(text, bytes) else text.encode())
    log.flush()
    return log


def judged(text: str | bytes, **known: object) -> JobVerdict:
    found = verdict(read(text, **known))
    assert found is not None
    return found


def only(text: str | bytes) -> JobFinding:
    (found,) = read(text).findings()
    return found


def timeout(rank: int, time: str = "11:40:07", seq: int = 1580, ran_for: int = 607000) -> str:
    return (
        f"[rank{rank}]:[E321 {time}.408271257 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation"
        f" timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000)"
        f" ran for {ran_for} milliseconds before timing out.\n"
    )


def counted(rank: int, enqueued: int, completed: int) -> str:
    return (
        f"[rank{rank}]:[E321 11:40:07.908 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure "
        f"detected by watchdog at work sequence id: 7 PG status: last enqueued work: {enqueued}, "
        f"last completed work: {completed}\n"
    )


def members(world: int = 64, per_node: int = 8) -> str:
    return "".join(
        f"{NODES[rank // per_node]}:{700 + rank}:{900 + rank} [{rank % per_node}] NCCL INFO comm 0x55aa rank {rank} "
        f"nRanks {world} nNodes {world // per_node} localRanks {per_node} localRank {rank % per_node} MNNVL 0\n"
        for rank in range(world)
    )


def step(number: int, time: str = "", loss: str = "2.31E+00") -> str:
    prefix = f"[2026-03-21 {time}] " if time else " "
    return (
        f"{prefix}iteration {number:8}/  115311 | consumed samples:     98415 | elapsed time per iteration (ms): 4247.9 | "
        f"lm loss: {loss} | loss scale: 1.0 | grad norm: 0.174 | number of nan iterations:   0 |\n"
    )


# -- one line ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "ecc"),
        ("RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution", "nvlink"),
        ("RuntimeError: No CUDA GPUs; no CUDA-capable device is detected", "gpu_lost"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "gpu_lost"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "cuda_oom"),
        ("RuntimeError: CUDA error: out of memory", "cuda_oom"),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM",
            "host_oom",
        ),
        ("slurmstepd: error: Detected 2 oom-kill event(s) in step 12.batch cgroup.", "host_oom"),
        ("srun: error: node-03: task 4: Out Of Memory", "host_oom"),
        ("RuntimeError: CUDA error: device-side assert triggered", "assert"),
        ("CUDA error: an illegal memory access was encountered", "illegal_access"),
        ("  what():  CUDA error: unspecified launch failure", "cuda_error"),
        ("CUDA error: the launch timed out and was terminated", "cuda_error"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`", "cuda_error"),
        ("OSError: [Errno 28] No space left on device: '/ckpt/x'", "storage_full"),
        ("OSError: [Errno 122] Disk quota exceeded", "storage_full"),
        ("OSError: [Errno 116] Stale file handle: '/ckpt/x'", "storage_error"),
        ("OSError: [Errno 5] Input/output error", "storage_error"),
        (
            "RuntimeError: [enforce fail at inline_container.cc:603] . PytorchStreamWriter failed writing file",
            "storage_error",
        ),
        ("srun: error: node-03: task 4: Bus error", "bus_error"),
        ("srun: error: node-03: task 4: Segmentation fault (core dumped)", "crash"),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", "network"),
        (
            "node-03:617:2799 [3] transport/net_ib.cc:2360 NCCL WARN NET/IB: Got completion from peer 10.0.0.7",
            "network",
        ),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1287, internal error", "nccl_error"),
        ("[rank3]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 3] Heartbeat monitor timed out! Process will", "heartbeat"),
        (
            "[F] [PG 0 Rank 3] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress",
            "heartbeat",
        ),
        (
            "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(",
            "nccl_timeout",
        ),
        ("Observed flight recorder dump signal from another rank via TCPStore.", "told"),
        ("srun: error: Node failure on node-05", "node_failure"),
        ("srun: error: node-03: task 4: Exited with exit code 1", "exit"),
        ("srun: error: node-03: tasks 4-7: Terminated", "killed"),
        ("srun: error: node-03: tasks 4-7: Killed", "killed"),
        ("slurmstepd: error: *** STEP 123.0 ON node-01 CANCELLED AT 2026-03-21T11:35:36 ***", "cancelled"),
        (
            "E0321 11:13:20.0 329 torch/distributed/elastic/api.py:874] failed (exitcode: 1) local_rank: 3 (pid: 4)",
            "exit",
        ),
        ("Loss is nan, stopping training", "nan"),
        ("rank 12: found NaN in local grad norm in backward pass. Device: 4, node: node-03", "nan"),
    ],
)
def test_a_line_has_a_kind(line: str, kind: str) -> None:
    assert only(line + "\n").kind == kind


def test_every_form_has_a_word_that_is_looked_for_first() -> None:
    assert {kind for kind, _ in FORMS} <= set(KINDS)
    assert all(word == word.casefold() for word in WORDS)


@pytest.mark.parametrize(
    "line",
    [
        step(12, loss="2.3E+00"),
        "  check_for_nan_in_loss_and_grad .................. True\n",
        "Loss=3.920, gradient_norm=1.070, Epoch 0: 3%|3| 565/20101 [2:12:19<76:15:08, 14.05s/it, loss=nan, v_num=]\n",
        "best_val_loss: inf\n",
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n",
        "W0321 11:23:17.366 329 torch/distributed/elastic/api.py:900] Sending process 33051 closing signal SIGTERM\n",
        "node-01:617:2799 [3] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n",
        "    raise ValueError('never mind')\n",
        "ValueError: mentioned without a traceback\n",
        "\n",
        "loss info follows\n",
    ],
)
def test_what_is_no_failure_is_left_alone(line: str) -> None:
    assert read(line).findings() == ()


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[rank12]: RuntimeError: CUDA error: x y", 12),
        ("[E ProcessGroupNCCL.cpp:737] [Rank 12] NCCL watchdog: CUDA error: x y", 12),
        (
            "[rank12]:[E321 01:04:03.3 ProcessGroupNCCL.cpp:1413] [PG 5 Rank 0] CUDA error: x y",
            12,
        ),  # 0 is its place in PG 5
        ("[1,12]<stderr>:RuntimeError: CUDA error: x y", 12),
        ("12: RuntimeError: CUDA error: x y", 12),
        ("[default3]:RuntimeError: CUDA error: x y", None),
    ],
)
def test_the_rank_that_wrote_a_line(line: str, rank: int | None) -> None:
    assert only(line + "\n").rank == rank


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("[2026-03-21 11:40:07] CUDA", "11:40:07"),
        ("2026-03-21T11:40:07.123Z CUDA", "11:40:07"),
        ("2026-03-21T20:40:07+09:00 CUDA", "11:40:07"),
        ("2026-03-21 11:40:07,123 ERROR", "11:40:07"),
        ("time 2026-03-21_11:40:07", "11:40:07"),
        ("03/21/2026 11:40:07 - ERROR", "11:40:07"),
        ("03/21 11:40:07 - mmengine", "11:40:07"),
        ("[rank0]:[E321 11:40:07.408271257 P.cpp:607]", "11:40:07"),
        ("E0321 11:40:07.000 32974 torch/x.py:874]", "11:40:07"),
        ("Mar 21 11:40:07 node-01 kernel: x", "11:40:07"),
        (f"[{clock('11:40:07')}.25] x", "11:40:07"),
        ("loss 11:40", None),
        ("E9999 11:40:07 x", None),
        ("2026-13-41 11:40:07", None),
    ],
)
def test_a_lines_own_time(text: str, at: str | None) -> None:
    assert when(text, NOW, UTC) == (clock(at) if at else None)


def test_a_time_without_a_year_lies_in_the_past() -> None:
    found = when("[E1231 23:59:59.1 P.cpp:1]", int(datetime(2027, 1, 1, 0, 5, tzinfo=UTC).timestamp()), UTC)
    assert found == int(datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(("told", "written"), [("11:40:07", "11:40:07"), ("20:40:07", "11:40:07")])
def test_a_container_in_utc_on_a_site_that_is_not(told: str, written: str) -> None:
    log = JobLines(NOW, zones=(ZoneInfo("Asia/Seoul"), UTC))
    log.feed(timeout(3, told).encode(), written=clock(written) + 2)
    assert log.findings()[0].at == clock(written)


# -- what lines look like in the wild ----------------------------------------------------------------------------------


def test_colours_progress_bars_and_broken_text() -> None:
    raw = b"  3%|\xe2\x96\x8e | 3/100\r  4%|\xff\xfe\x00\r\x1b[31m[rank3]: RuntimeError: CUDA error: unknown error\x1b[0m\n"
    found = only(raw)
    assert (found.rank, found.kind) == (3, "cuda_error")
    assert found.text == "[rank3]: RuntimeError: CUDA error: unknown error"


def test_two_writers_in_one_line() -> None:
    found = read(timeout(3).rstrip("\n") + timeout(5) + "4%|##srun: error: node-02: task 9: Exited with exit code 1\n")
    assert {(f.kind, f.rank) for f in found.findings()} == {("nccl_timeout", 3), ("nccl_timeout", 5), ("exit", 9)}


def test_a_huge_line_keeps_its_ends() -> None:
    huge = "[rank3]: RuntimeError: CUDA error: unknown error " + "x" * 5_000_000 + " No space left on device\n"
    found = only(huge)
    assert found.kind == "storage_full" and found.rank == 3 and len(found.text) <= 300


def test_numbers_out_of_all_bounds_are_survived() -> None:
    found = read(
        "[rank" + "9" * 9000 + "]: CUDA error: x y\nworld_size=99999999999\nranks [" + "1-9" * 3000 + "] are the\n"
    )
    assert {f.kind for f in found.findings()} == {"cuda_error"}


@pytest.mark.parametrize("cut", [1, 7, 64, 4096])
def test_bytes_may_be_cut_anywhere(cut: int) -> None:
    text = (members() + step(11, "11:29:40") + timeout(3) + "srun: error: node-02: task 9: Killed\n").encode()
    log = JobLines(NOW, nodes=NODES)
    for begin in range(0, len(text), cut):
        log.feed(text[begin : begin + cut])
    assert log.findings() == read(text).findings()
    assert log.work == read(text).work


# -- where ranks run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    [
        members(),
        "[rank12]: node-02:712:912 [4] NCCL INFO Bootstrap : Using eth0\n",
        "srun: error: node-02: tasks 8-15: Exited with exit code 1\n",
    ],
)
def test_a_ranks_node_from_other_lines(before: str) -> None:
    log = read(before + "[rank12]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    assert [(f.rank, f.node) for f in log.findings() if f.kind == "ecc"] == [(12, "node-02")]


def test_ranks_of_a_small_group_are_not_the_jobs() -> None:
    small = "node-07:1:2 [0] NCCL INFO comm 0x1 rank 3 nranks 8 cudaDev 0 busId 1 - Init COMPLETE\n"
    assert read(small + members() + small).crew.node_of(3) == "node-01"


def test_a_task_is_no_rank_under_torchrun() -> None:
    log = read(
        "torchrun starts\nsrun: error: node-03: task 2: Exited with exit code 1\n2: RuntimeError: CUDA error: unknown error\n"
    )
    assert [(f.kind, f.rank, f.node) for f in log.findings()] == [
        ("exit", None, "node-03"),
        ("cuda_error", None, "node-03"),
    ]


def test_a_hosts_full_name_is_the_jobs_node() -> None:
    assert only("srun: error: NODE-03.cluster.example: task 4: Exited with exit code 1\n").node == "node-03"


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_a_gpu_that_says_so_is_the_first_though_others_speak_before() -> None:
    others = "".join(timeout(rank) for rank in range(8))
    found = judged(members() + others + "[rank12]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    assert (found.kind, found.hint, found.rank, found.node) == ("ecc", "hardware", 12, "node-02")
    assert found.suspects == ("node-02",)
    assert found.text == "rank 12 on node-02: uncorrectable memory error of a GPU"
    assert len(found.lines) == 2 and "ECC" in found.lines[0]


def test_the_stall_began_before_the_watchdog_spoke() -> None:
    found = judged(timeout(0) + timeout(1) + timeout(2, "11:40:09"))
    assert found.at == clock("11:40:07") and found.since == clock("11:30:00")
    assert found.node is None and "cannot tell" in found.text and found.suspects == ()


def test_the_silent_rank_is_the_suspect() -> None:
    found = judged(members() + "".join(timeout(rank) for rank in range(64) if rank != 37))
    assert (found.rank, found.node, found.suspects) == (37, "node-05", ("node-05",))


def test_all_ranks_of_a_silent_node() -> None:
    found = judged(members() + "".join(timeout(rank) for rank in range(64) if rank // 8 != 2), world=64)
    assert (found.rank, found.node) == (None, "node-03")


@pytest.mark.parametrize("silent", [set(range(0, 64, 8)), {3, 60}])
def test_silent_ranks_all_over_tell_nothing(silent: set[int]) -> None:
    found = judged(members() + "".join(timeout(rank) for rank in range(64) if rank not in silent), world=64)
    assert found.node is None and "cannot tell" in found.text


def test_the_rank_that_is_behind() -> None:
    lines = "".join(timeout(rank) + counted(rank, 90, 79 if rank == 5 else 84) for rank in range(8))
    found = judged(members(8) + lines)
    assert (found.rank, found.node) == (5, "node-01") and "behind" in found.text


def test_torchs_own_report_of_who_did_not_come() -> None:
    report = "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
    report += "\t     [9] finished collective #16, but didn't join collective #17 (count from 1)\n"
    found = judged(members() + "".join(timeout(rank) for rank in range(64)) + report)
    assert (found.rank, found.node) == (9, "node-02")


def test_one_stuck_while_others_wait() -> None:
    stuck = "[rank6]:[F321 11:40:09.1 P.cpp:1169] [PG 0 Rank 6] ProcessGroupNCCL's watchdog got stuck for 600 seconds\n"
    found = judged(members(8) + "".join(timeout(rank) for rank in range(6)) + timeout(7) + stuck)
    assert (found.rank, found.node) == (6, "node-01")


def test_a_timeout_while_saving_is_the_storages() -> None:
    saving = step(150, "11:29:00") + "saving checkpoint at iteration     150 to /ckpt in torch format\n"
    found = judged(members() + saving + "".join(timeout(rank) for rank in range(1, 64)))
    assert found.hint == "storage" and found.suspects == () and "after step 150" in found.text


def test_two_ends_of_a_broken_connection() -> None:
    warn = (
        "{0}:617:2799 [3] transport/net_ib.cc:2360 NCCL WARN NET/IB: Got completion from peer 10.0.0.7 with status=12\n"
    )
    found = judged(warn.format("node-03") + warn.format("node-06") + timeout(1) + timeout(2))
    assert found.hint == "network" and found.suspects == ("node-03", "node-06") and found.node is None


def test_a_full_disk_is_no_nodes_fault() -> None:
    lines = "".join(f"[rank{r}]: OSError: [Errno 28] No space left on device: '/ckpt'\n" for r in (9, 0, 41))
    found = judged(members() + lines)
    assert (found.hint, found.rank, found.node, found.suspects) == ("storage", 9, "node-02", ())


def test_one_error_on_many_nodes_at_once_names_none() -> None:
    lines = "".join(f"[rank{r}]: [2026-03-21 11:40:07] CUDA error: unknown error\n" for r in (9, 0, 41))
    found = judged(members() + lines)
    assert found.suspects == () and "3 lines from 3 nodes" in found.text


def test_the_earlier_of_many_is_named() -> None:
    early = "[rank41]: [2026-03-21 11:39:58] CUDA error: unknown error\n"
    found = judged(members() + "[rank0]: [2026-03-21 11:40:07] CUDA error: unknown error\n" + early)
    assert (found.rank, found.suspects) == (41, ("node-06",))


def report(failures: str, root: str) -> str:
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" + "=" * 60 + "\ntrain.py FAILED\n"
        + "-" * 60 + f"\nFailures:\n{failures}" + "-" * 60 + f"\nRoot Cause (first observed failure):\n{root}" + "=" * 60 + "\n"
    )  # fmt: skip


def failed(index: int, rank: int, node: str, time: str, code: int, why: str = "To enable traceback see: x") -> str:
    return (
        f"[{index}]:\n  time      : 2026-03-21_{time}\n  host      : {node}.example\n  rank      : {rank} (local_rank: {rank % 8})\n"
        f"  exitcode  : {code} (pid: 78971)\n  error_file: <N/A>\n  traceback : {why}\n"
    )


def test_torchruns_root_cause() -> None:
    others = failed(1, 8, "node-02", "11:40:09", -15, "Signal 15 (SIGTERM) received by PID 8")
    found = judged(report(others, failed(0, 13, "node-02", "11:40:07", 1)))
    assert (found.kind, found.rank, found.node, found.at) == ("exit", 13, "node-02", clock("11:40:07"))


def test_the_earliest_root_cause_of_several_agents() -> None:
    second = report("  <NO_OTHER_FAILURES>\n", failed(0, 8, "node-02", "11:40:09", 1))
    first = report("  <NO_OTHER_FAILURES>\n", failed(0, 21, "node-03", "11:40:01", 1))
    assert judged(second + first).rank == 21


def test_a_signal_that_torchrun_tells() -> None:
    assert judged(report("  <NO_OTHER_FAILURES>\n", failed(0, 13, "node-02", "11:40:07", -11))).kind == "crash"


def test_a_python_error_of_a_rank() -> None:
    text = (
        '[rank3]: Traceback (most recent call last):\n[rank3]:   File "x", line 1\n[rank3]: ValueError: bad shard 7\n'
    )
    found = judged(members() + text + "".join(timeout(rank) for rank in range(3)))
    assert (found.kind, found.hint, found.rank) == ("python_error", "application", 3)
    assert "bad shard 7" in found.lines[0] and found.suspects == ()


def test_the_first_task_to_fail_by_itself() -> None:
    found = judged(
        "srun: error: node-05: task 33: Exited with exit code 7\n"
        "slurmstepd: error: *** STEP 123.0 ON node-01 CANCELLED AT 2026-03-21T11:35:36 ***\n"
        "srun: error: node-01: tasks 0-7: Terminated\nsrun: error: node-02: tasks 8-15: Killed\n"
    )
    assert (found.kind, found.rank, found.node) == ("exit", 33, "node-05")


def test_a_cancelled_job_blames_nobody() -> None:
    found = judged("slurmstepd: error: *** JOB 9 ON node-01 CANCELLED AT 2026-03-21T11:35:36 DUE TO TIME LIMIT ***\n")
    assert (found.kind, found.hint, found.node, found.at) == ("cancelled", "scheduler", None, clock("11:35:36"))
    assert "TIME LIMIT" in found.lines[0]


def test_a_log_without_a_failure_has_no_verdict() -> None:
    assert verdict(read(members() + step(1) + step(2))) is None


# -- a run that goes on ------------------------------------------------------------------------------------------------


def test_an_error_that_the_run_outlived_is_forgotten() -> None:
    error = "[rank9]: [2026-03-21 09:00:00] Connection reset by peer\n"
    assert read(error + step(10, "09:01:00")).findings() != ()  # a step under way may still end
    assert read(error + step(11, "09:05:00")).findings() == ()


def test_steps_kept_back_by_a_buffer_forgive_nothing() -> None:
    error = "[rank9]: RuntimeError: CUDA error: unknown error\n"
    buffered = "".join(step(n) for n in range(8192 // len(step(1))))
    assert read(error + buffered).findings() != ()
    assert read(error + 3 * buffered).findings() == ()


def test_the_same_error_again_is_told_again() -> None:
    error = "[rank9]: [2026-03-21 {0}] Connection reset by peer\n"
    found = read(error.format("09:00:00") + step(11, "09:05:00") + error.format("09:06:00")).findings()
    assert [f.at for f in found] == [clock("09:06:00")]


def test_a_loss_that_is_no_number_until_it_is_one_again() -> None:
    bad = step(10, "09:00:00", "nan") + step(11, "10:00:00", "nan")
    found = judged(bad)
    assert (found.kind, found.at, found.hint) == ("nan", clock("09:00:00"), "application")
    assert verdict(read(bad + step(12, "10:01:00"))) is None


@pytest.mark.parametrize(
    ("lines", "number"),
    [
        (step(12695), 12695),
        ("{'loss': 2.3, 'learning_rate': 1e-5, 'step': 90}\n", 90),
        ("step: 1200  loss:  4.1  tps: 3,000  mfu: 40%  tokens\n", 1200),
        ("iter 36298: loss 5.8465, time 148.74ms\n", 36298),
        ("Epoch 0:  3%|#  | 565/20101 [2:12:19<76:15:08, 14.05s/it, v_num=0, loss=3.1]\r", 565),
        ("INFO - Iter(train) [ 50/1000]  lr: 1e-4  loss: 0.3\n", 50),
        ("[2026-03-21 11:00:00,1] [INFO] step=880, skipped=0, lr=[1e-4], mom=0.9\n", 880),
    ],
)
def test_the_last_step_of_trainers(lines: str, number: int) -> None:
    assert read(lines).work.step == number


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("  successfully saved checkpoint at iteration     150 to checkpoints/gpt2\n", 150),
        ("[2026-03-21 11:00:00] [INFO] [Torch] Checkpoint global_step3000 is ready now!\n", 3000),
        ("Saved checkpoint to /ckpt/checkpoint-1200\n", 1200),
    ],
)
def test_the_last_save_of_trainers(line: str, number: int) -> None:
    work = read("saving checkpoint at iteration 150 to x\n" + line).work
    assert work.saved_step == number and not work.saving


def test_the_rank_that_had_nothing_to_do_while_others_waited() -> None:
    lines = "".join(timeout(rank) + counted(rank, 90, 84) for rank in range(7)) + counted(7, 84, 84)
    found = judged(members(8) + lines)
    assert (found.rank, found.node) == (7, "node-01")


def test_a_timeout_of_gloo_is_a_wait_and_no_error_of_the_program() -> None:
    trace = "[rank3]: Traceback (most recent call last):\n[rank3]: RuntimeError: [/pytorch/gloo/unbound_buffer.cc:78] Timed out "
    found = only(trace + "waiting 1800000ms for recv operation to complete\n")
    assert (found.kind, found.ran_for) == ("nccl_timeout", 1800)


def test_torchruns_root_cause_tells_whose_error_counts() -> None:
    errors = "".join(f"[rank{r}]: RuntimeError: CUDA error: unspecified launch failure\n" for r in (0, 9, 41))
    root = report("  <NO_OTHER_FAILURES>\n", failed(0, 41, "node-06", "11:40:01", 1))
    late = report("  <NO_OTHER_FAILURES>\n", failed(0, 0, "node-01", "11:40:05", 1))
    found = judged(members() + errors + late + root)
    assert (found.kind, found.rank, found.suspects) == ("cuda_error", 41, ("node-06",))
    same = report("  <NO_OTHER_FAILURES>\n", failed(0, 0, "node-01", "11:40:02", 1))
    assert judged(members() + errors + same + root).suspects == ()


def test_a_node_that_died_without_a_word() -> None:
    lines = "".join(f"[rank{r}]: ConnectionResetError: Connection reset by peer\n" for r in range(64) if r // 8 != 4)
    found = judged(members() + lines, world=64)
    assert (found.hint, found.node, found.suspects) == ("network", "node-05", ("node-05",))


def test_garbage_is_survived_and_nothing_is_told_twice() -> None:
    """Pieces of real lines in any order, cut anywhere."""
    pieces = (
        (
            members(8)
            + timeout(3)
            + counted(3, 9, 8)
            + step(5, "11:00:00", "nan")
            + failed(0, 13, "node-02", "11:40:07", 1)
        ).encode()
        + b"\xff\x00\x1b[31m\r\r\n[rank]:[PG (ID Rank -]: srun: error: [: tasks -,: \nloss=\n20260-99-99 99:99:99\n"
    )
    for seed in range(60):
        shuffled = random.Random(seed)
        parts = [pieces[i : i + shuffled.randrange(1, 90)] for i in range(0, len(pieces), 40)]
        shuffled.shuffle(parts)
        log = read(b"".join(parts))
        verdict(log)
        keys = [(f.kind, f.rank, f.node, f.local, f.text) for f in log.findings()]
        assert len(keys) == len(set(keys))


def test_ranks_of_the_only_node_do_not_stand_out() -> None:
    found = judged(members(8) + "".join(timeout(rank) for rank in range(6)), world=8)
    assert found.node is None and "cannot tell" in found.text


def test_counters_of_few_ranks_tell_nothing_of_the_many() -> None:
    found = judged(members(8) + timeout(7) + counted(7, 90, 84) + counted(0, 84, 84) + counted(5, 84, 84), world=8)
    assert found.rank is None


def test_a_node_told_only_by_the_second_line() -> None:
    found = judged(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=9.0.\nsrun: error: node-03: task 4: Out Of Memory\n"
    )
    assert (found.kind, found.rank, found.node) == ("host_oom", 4, "node-03")


def test_ranks_that_all_end_by_themselves_accuse_no_node() -> None:
    line = "srun: error: {0}: task {1}: Exited with exit code 1\n"
    found = judged(line.format("node-05", 33) + line.format("node-02", 9))
    assert (found.rank, found.node, found.suspects) == (33, "node-05", ())
    assert judged(line.format("node-05", 33)).suspects == ("node-05",)
