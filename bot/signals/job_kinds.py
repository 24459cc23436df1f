"""What lines of a job's log can tell: the table of their forms. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Hint = Literal["hardware", "network", "storage", "application", "scheduler", "unknown"]


@dataclass(frozen=True, slots=True)
class KindOfLine:
    """level: 1 names a cause, 2 a symptom that several causes have, 3 a consequence of somebody else's failure."""

    words: str
    hint: Hint
    level: int


KINDS: Mapping[str, KindOfLine] = {
    "ecc": KindOfLine("uncorrectable memory error of a GPU", "hardware", 1),
    "nvlink": KindOfLine("uncorrectable NVLink error", "hardware", 1),
    "gpu_lost": KindOfLine("a GPU is gone or cannot be used", "hardware", 1),
    "node_failure": KindOfLine("the node failed", "hardware", 1),
    "cuda_oom": KindOfLine("out of GPU memory", "application", 1),
    "host_oom": KindOfLine("out of host memory", "application", 1),
    "assert": KindOfLine("assertion in the program's own GPU code", "application", 1),
    "illegal_access": KindOfLine("illegal memory access on a GPU", "application", 1),
    "cuda_error": KindOfLine("CUDA error", "unknown", 1),
    "storage_full": KindOfLine("no space left or quota exceeded", "storage", 1),
    "storage_error": KindOfLine("the storage gave an error", "storage", 1),
    "bus_error": KindOfLine("bus error (a mapped file or shared memory went away)", "unknown", 1),
    "crash": KindOfLine("segmentation fault", "application", 1),
    "nan": KindOfLine("the loss is no number", "application", 1),
    "python_error": KindOfLine("an error in the program", "application", 1),
    "desync": KindOfLine("ranks did not join a collective", "unknown", 2),
    "network": KindOfLine("the network between nodes failed", "network", 2),
    "heartbeat": KindOfLine("NCCL's watchdog got stuck", "unknown", 2),
    "nccl_timeout": KindOfLine("a collective timed out", "unknown", 2),
    "nccl_error": KindOfLine("NCCL failed", "unknown", 2),
    "exit": KindOfLine("a rank ended", "unknown", 2),
    "killed": KindOfLine("a rank was killed", "unknown", 3),
    "told": KindOfLine("told by another rank to stop", "unknown", 3),
    "cancelled": KindOfLine("the scheduler ended it", "scheduler", 3),
}

# Of a line in lower case (that is searched three times faster than one in any case). The first that matches tells its
# kind, so the special stands before the general.
FORMS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("node_failure", r"srun: error: node failure on \S+"),
        ("cancelled", r"\*\*\* (?:job|step) \S+ on \S+ cancelled at "),
        ("nccl_timeout", r"collective timeout from this local rank|timed out waiting \d+ms for \w+ operation"),
        ("told", r"flight recorder dump signal from another rank|dump signal due to a collective timeout"),
        ("nccl_timeout", r"caught collective operation timeout|watchdog caught collective"),
        ("heartbeat", r"heartbeat monitor timed out|watchdog (?:thread )?(?:got|was) stuck for \d+ seconds"),
        ("ecc", r"uncorrectable ecc|cudaerroreccuncorrectable|double[- ]bit ecc"),
        ("nvlink", r"uncorrectable nvlink|cudaerrornvlinkuncorrectable"),
        (
            "gpu_lost",
            r"gpu is lost|fallen off the bus|no cuda-capable device|cudaerrornodevice|hardware stack error"
            r"|unable to determine the device handle|device(?:s|\(s\)) (?:is/)?are busy or unavailable"
            r"|cudaerrordevicesunavailable"
            r"|nvml: (?:unknown error|driver/library version mismatch)|system not yet initialized",
        ),
        (
            "cuda_oom",
            r"(?:cuda|hip|gpu) (?:error: )?out of memory|outofmemoryerror: |cuda_error_out_of_memory"
            r"|cublas_status_alloc_failed|cudaerrormemoryallocation",
        ),
        (
            "host_oom",
            r"detected \d+ oom[-_]kill event|out of memory: killed process|oom-kill:|: out of memory\s*$"
            r"|cannot allocate memory|std::bad_alloc|^memoryerror\b",
        ),
        ("assert", r"device-side assert|cudaerrorassert\b"),
        ("illegal_access", r"illegal memory access|misaligned address|illegal (?:address|instruction) was encountered"),
        (
            "storage_full",
            r"no space left on device|disk quota exceeded|\benospc\b|\bedquot\b|errno (?:28|122)\b",
        ),
        (
            "storage_error",
            r"stale (?:nfs )?file handle|\bestale\b|input/output error|remote i/o error|errno (?:5|116|121)\]"
            r"|read-only file system|transport endpoint is not connected|after transport endpoint shutdown"
            r"|pytorchstreamwriter failed|nfs: server \S+ not responding",
        ),
        ("bus_error", r"\bbus error\b|\bsigbus\b"),
        ("crash", r"segmentation fault|\bsigsegv\b"),
        (
            "nan",
            r"\bloss is nan|found nan in|nan (?:loss )?(?:detected|encountered)|number of nan iterations:\s*[1-9]"
            r"|non-?finite loss",
        ),
        (
            "network",
            r"connection reset by peer|connection closed by (?:remote )?peer|\beconnreset\b"
            r"|ncclremoteerror|ibv_wc_\w*err|nccl warn.*(?:net/|ibv_|socket|async event|connect)"
            r"|no route to host|network is unreachable"
            r"|broken ?pipe|connection ?refused|diststoreerror|distnetworkerror|socket has timed out"
            r"|remote process exited or there was a network error",
        ),
        (
            "nccl_error",
            r"nccl (?:error|communicator was aborted)|distbackenderror|ncclunhandledcudaerror"
            r"|ncclinternalerror|ncclsystemerror",
        ),
        ("cuda_error", r"cuda error: \S|cuda_error_\w|cublas_status_\w|cudnn_status_\w*(?:fail|error)"),
        ("exit", r"srun: error: \S+: tasks? [\d,-]+: |failed \(exitcode: -?\d+\) local_rank: \d+"),
        ("python_error", r"^[a-z_][\w.]*(?:error|exception|keyboardinterrupt)(?::|$)"),
    )
)
# Launchers' errors: they tell that something failed below them, never what.
LAUNCHERS = ("ChildFailedError", "CalledProcessError", "SignalException", "KeyboardInterrupt", "ProcessExitedException")
# How a process that did not fail by itself ends.
STOPPED = re.compile(r"terminated|\bkilled|signal (?:15|9)\b|SIGTERM|SIGKILL|cancel", re.IGNORECASE)
# One of these is in every line that has a form: what has none is most of a log, and is not looked at closer.
WORDS = (
    "err", "fail", "fault", "cancel", "collective", "signal", "heartbeat", "stuck", "ecc", "nvlink", "gpu", "device",
    "nvml", "memory", "oom", "alloc", "misaligned", "illegal", "space left", "quota", "enospc", "edquot", "stale",
    "transport", "streamwriter", "responding", "sig", "nan", "finite", "connection", "wc_", "warn", "route",
    "unreachable", "timed out", "nccl", "cuda", "cublas", "cudnn", "exception", "interrupt", "file system",
    "not yet", "network", "rank", "traceback", "torchrun", "elastic",
)  # fmt: skip

# -- progress ----------------------------------------------------------------------------------------------------------

STEP = re.compile(
    r"(?:\b(?:global[_ ])?(?:step|iteration|iter)s?\b['\"]?\s*[:=#]?\s*(?:\(train\)\s*)?\[?\s*(?P<step>\d{1,12})"
    r"|\b(?P<of>\d{1,12})\s*/\s*\d+ \[\d[\d:]*<)",
    re.IGNORECASE,
)
AT_WORK = re.compile(
    r"loss|\blr\b|learning.rate|throughput|tokens|samples|elapsed|it/s|s/it|tflops|mfu|grad", re.IGNORECASE
)
LOSS = re.compile(
    r"(?P<name>\w{0,20})loss['\"]?\s*[:=]?\s*(?:tensor\()?[-+]?(?P<value>nan\b|inf\b|\d[\d.]*)", re.IGNORECASE
)
SAVED = re.compile(
    r"\bsaved\b.{0,80}\bcheckpoint|\bcheckpoint\b.{0,160}\b(?:saved|is ready now)|finished saving", re.IGNORECASE
)
SAVING = re.compile(r"\bsaving\b.{0,80}\bcheckpoint|\bcheckpoint\b.{0,60}\bsaving\b", re.IGNORECASE)
NUMBER = re.compile(r"(?:iteration|iter|step|checkpoint)[ _=:-]*0*(?P<step>\d{1,12})", re.IGNORECASE)

# -- who said it -------------------------------------------------------------------------------------------------------

ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
TOGETHER = re.compile(r"(?<=\S)(?=\[rank\d+\]:)|(?<=[^\s:])\s?(?=(?:srun|slurmstepd): error:)")
RANKS = (
    re.compile(r"\[rank(?P<rank>\d{1,12})\]:?"),
    re.compile(r"^\[\d+,(?P<rank>\d{1,12})\]<std(?:err|out)>:"),  # mpirun --tag-output
    re.compile(r"\[PG (?:ID \S+ PG GUID )?\S+ Rank (?P<rank>\d{1,12})\]"),
    re.compile(r"\[Rank (?P<rank>\d{1,12})\]"),
    re.compile(r"^\W*rank[ :=]*(?P<rank>\d{1,12})\b", re.IGNORECASE),
)
LABEL = re.compile(r"^\s*(?P<task>\d{1,6}): ?(?=\S)")  # srun --label
LOCAL = re.compile(r"^\s*\[(?:default|trainer|worker)(?P<local>\d{1,12})\]:")  # torchrun --tee
PREFIX = re.compile(
    r"^\s*(?:\[\d+,\d+\]<std(?:err|out)>:|\[\d+\] (?=\[)|\[rank\d+\]:|\[(?:default|trainer|worker)\d+\]:)\s?"
)
NCCL = re.compile(r"(?:^|[\s\]>:])(?P<host>[A-Za-z0-9][\w.-]*):\d+:\d+ \[(?P<local>-?\d{1,12})\]")
MEMBER = re.compile(r"NCCL INFO .*\brank (?P<rank>\d{1,12}) nranks (?P<world>\d{1,12})", re.IGNORECASE)
WORLD = re.compile(r"world[_ ]size\W{1,3}(?P<world>\d{1,12})", re.IGNORECASE)
SRUN = re.compile(r"srun: error: (?P<hosts>[^\s:]+): tasks? (?P<tasks>[\d,-]+): (?P<how>.+)")
FAILED_NODE = re.compile(r"srun: error: Node failure on (?P<host>[^\s,\[]+)$")
ELASTIC = re.compile(r"failed \(exitcode: (?P<code>-?\d{1,12})\) local_rank: (?P<local>\d{1,12})")
STEPD = re.compile(r"slurmstepd-(?P<host>[\w.-]+): error:")
NODE = re.compile(r"\b(?:node|host(?:name)?)\s*[:=]\s*(?P<host>[A-Za-z][\w.-]*)")
GROUP = re.compile(r"\[PG (?:ID \S+ PG GUID )?(?P<group>\S+) Rank \d+\]")
BACKGROUND = re.compile(
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,12}), "
    r"last completed (?:NCCL )?work: (?P<completed>-?\d{1,12})"
)
RAN_FOR = re.compile(r"(?:ran for|waiting) (?P<ms>\d{1,12}) ?(?:milliseconds|ms)")
TIMEOUT = re.compile(r"Timeout\(ms\)=(?P<ms>\d{1,12})")
LAGGING = re.compile(
    r"\[(?P<ranks>\d[\d, ]*)\] (?:joined but did(?:n't| not) finish|finished collective \S+,? but did(?:n't| not) join)"
    r"|ranks \[(?P<missing>\d[\d, ]*)\] are the lagging ranks"
)
TOLD_BY = re.compile(r"collective timeout from\s+rank (?P<rank>\d{1,12})")
FIELD = re.compile(r"^\s*(?P<key>time|host|rank|exitcode|traceback)\s+: (?P<value>.*)")
TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
