"""A real Slurm on one machine: several slurmd with made-up GPUs, all below one process that ends them."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.real.accounting import Accounting
from tests.real.supervise import Namespace, become, eventually, free_port

CLUSTER = "testcl"
GPUS = 8
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "OUT_OF_MEMORY")

# Shortened: cred_expire (a requeued job waits for it), SlurmdTimeout, KillWait, the scheduler's intervals.
SLURM_CONF = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/munge.sock,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={root}/state
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdSpoolDir={root}/spool/%n
SlurmdPidFile={root}/run/slurmd.%n.pid
SlurmdLogFile={root}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=100000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
JobRequeue=1
ReturnToService=0
SlurmdTimeout=8
SlurmctldTimeout=8
KillWait=2
MinJobAge=3600
MaxNodeCount=128
{accounting}
NodeName={names} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} \
Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=1000000 \
Gres=gpu:b200:{gpus} Feature=b200,ib State=UNKNOWN
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=debug Nodes=ALL MaxTime=INFINITE State=UP
"""
ACCOUNTING_CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={root}/munge/munge.sock
AccountingStorageTRES=gres/gpu"""


class SlurmCluster:
    """`root` must be a folder that every account may enter; job folders go to `work`."""

    def __init__(self, root: Path, nodes: int = 8, accounting: bool = True) -> None:
        self.root, self.host = root, socket.gethostname().split(".")[0]
        self.nodes = [f"node-{number:02d}" for number in range(1, nodes + 1)]
        self.conf, self.work = root / "etc/slurm.conf", root / "work"
        self.env = {**os.environ, "SLURM_CONF": str(self.conf)}
        self._make_folders()
        self._hurt: dict[str, signal.Signals] = {}
        self._world = Namespace(root / "log/namespace.log", self.env)
        try:
            self._start(accounting)
        except BaseException:
            self.stop()
            raise

    # -- starting ------------------------------------------------------------------------------------------

    def _make_folders(self) -> None:
        for name in ("etc", "log", "run", "munge", "state", "dev", "work", *self._spools()):
            (self.root / name).mkdir(parents=True)
        self.work.chmod(0o1777)
        key = self.root / "munge/munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        for gpu in range(GPUS):
            os.mknod(self.root / f"dev/nvidia{gpu}", 0o20666, os.makedev(195, gpu))

    def _spools(self) -> list[str]:
        return [f"spool/{node}" for node in self.nodes]

    def _start(self, accounting: bool) -> None:
        self._start_munge()
        books = Accounting(self.root, self.host, self._world, self.env) if accounting else None
        self._write_conf(books)
        if books:
            books.add_users(CLUSTER)
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        eventually(lambda: set(self.states().values()) == {"idle"}, within=30, why="all nodes idle")

    def _start_munge(self) -> None:
        folder = self.root / "munge"
        argv = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.sock",
                f"--pid-file={self.root}/run/munged.pid", f"--seed-file={folder}/seed"]  # fmt: skip
        self._world.start(argv, self.root / "log/munged.log")
        eventually((folder / "munge.sock").exists, every=0.02, why="munge's socket")

    def _write_conf(self, books: Accounting | None) -> None:
        lines = "AccountingStorageType=accounting_storage/none"
        if books:
            lines = ACCOUNTING_CONF.format(port=books.port, root=self.root)
        names = f"node-[01-{len(self.nodes):02d}]"
        ports = ",".join(str(free_port()) for _ in self.nodes)
        self.conf.write_text(
            SLURM_CONF.format(
                cluster=CLUSTER,
                host=self.host,
                port=free_port(),
                root=self.root,
                accounting=lines,
                names=names,
                ports=f"[{ports}]",
                gpus=GPUS,
            )  # fmt: skip
        )
        devices = f"NodeName={names} Name=gpu Type=b200 File={self.root}/dev/nvidia[0-{GPUS - 1}]"
        (self.root / "etc/gres.conf").write_text(f"AutoDetect=off\n{devices}\n")
        (self.root / "etc/cgroup.conf").write_text("CgroupAutomount=no\nConstrainDevices=no\n")

    # -- asking and acting as any account ------------------------------------------------------------------

    def run(
        self,
        *argv: str | Path,
        user: str | None = None,
        check: bool = True,
        text: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """A Slurm command as root or as `user`; `text` goes to its standard input."""
        done = subprocess.run(
            [*become(user), *map(str, argv)],
            input=text or "",
            capture_output=True,
            text=True,
            env={**self.env, **(env or {})},
            cwd=self.work,
            timeout=timeout,
        )
        if check and done.returncode:
            raise AssertionError(f"{shlex.join(map(str, argv))}: {done.returncode} {done.stdout}{done.stderr}")
        return done

    def submit(
        self,
        script: str | Path,
        *sbatch_args: str,
        user: str = "trainer",
        env: Mapping[str, str] | None = None,
    ) -> str:
        """The job's id. A string is the script itself, a path is copied by sbatch."""
        words = ["sbatch", "--parsable", *sbatch_args]
        if isinstance(script, Path):
            words.append(str(script))
        text = script if isinstance(script, str) else None
        return self.run(*words, user=user, text=text, env=env).stdout.strip().split(";")[0]

    def jobs(self) -> list[dict[str, Any]]:
        """Every job slurmctld still knows, ended ones too."""
        jobs: list[dict[str, Any]] = json.loads(self.run("squeue", "--json").stdout)["jobs"]
        return jobs

    def job(self, job_id: str) -> dict[str, Any]:
        for job in self.jobs():
            if str(job["job_id"]) == job_id:
                return job
        raise LookupError(f"slurmctld knows no job {job_id}")

    def wait_job(self, job_id: str, state: str = "RUNNING", within: float = 20) -> dict[str, Any]:
        def check() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["job_state"] == state else None

        return eventually(check, within=within, why=f"job {job_id} {state}")

    def node(self, name: str) -> dict[str, str]:
        """`scontrol show node` by field; the holder stays in Reason as Slurm prints it."""
        line = self.run("scontrol", "-o", "show", "node", name).stdout.strip()
        line, _, reason = line.partition(" Reason=")
        fields = dict(re.findall(r"(\w+)=(.*?)(?=\s+\w+=|\s*$)", line))
        return {**fields, "Reason": reason} if reason else fields

    def states(self) -> dict[str, str]:
        """Node → the compact state of sinfo: idle, mix, alloc, drng, drain, down, with * when it is silent."""
        lines = self.run("sinfo", "--noheader", "--Node", "--partition=train", "--format=%N %t").stdout
        return dict(line.split() for line in lines.splitlines())

    def requeue(self, job_id: str, user: str | None = None) -> None:
        """As a person would, and at once. `StartTime=now` would be wrong: slurmd kills a rerun that begins in
        the second in which the run before ended ("Job credential revoked"), and a job that is still
        completing ignores it."""
        self.run("scontrol", "requeue", job_id, user=user)
        self.run("scontrol", "update", f"jobid={job_id}", "StartTime=now+1", user=user)

    # -- faults ----------------------------------------------------------------------------------------------

    def down(self, node: str, reason: str = "failed in a test") -> None:
        """At once NODE_FAIL for its jobs; Slurm itself requeues those that may be."""
        self.run("scontrol", "update", f"nodename={node}", "state=down", f"reason={reason}")

    def start_node(self, node: str) -> None:
        self._world.start(["slurmd", "-D", "-N", node, "-f", self.conf], self.root / f"log/slurmd.{node}.out")

    def signal_node(self, node: str, number: signal.Signals) -> None:
        """SIGKILL or SIGSTOP: its slurmd dies or hangs, and Slurm says so after half a minute."""
        self._world.signal(self.root / f"run/slurmd.{node}.pid", number)
        self._hurt[node] = number

    def pause_controller(self) -> None:
        """Slurm hangs: clients connect and wait for an answer."""
        self._world.signal(self._controller, signal.SIGSTOP)

    def resume_controller(self) -> None:
        self._world.signal(self._controller, signal.SIGCONT)

    def stop_controller(self) -> None:
        """Slurm refuses connections. A clean stop: it saves its state."""
        self._world.signal(self._controller, signal.SIGTERM)
        eventually(lambda: not self._controller.exists(), within=20, why="slurmctld has left")

    def start_controller(self) -> None:
        self._world.start(["slurmctld", "-D", "-f", self.conf], self.root / "log/slurmctld.out")
        eventually(self._answers, within=20, every=0.05, why="slurmctld answers")

    @property
    def _controller(self) -> Path:
        return self.root / "run/slurmctld.pid"

    def _answers(self) -> bool:
        return "is UP" in self.run("scontrol", "ping", check=False).stdout

    # -- cleaning up -----------------------------------------------------------------------------------------

    def cancel_all(self) -> None:
        alive = self._alive()
        if alive:
            self.run("scancel", *alive, check=False)
            eventually(lambda: not self._alive(), within=20, why="no job left")

    def _alive(self) -> list[str]:
        return [str(job["job_id"]) for job in self.jobs() if job["job_state"] not in ENDED]

    def resume_all(self) -> None:
        """Every node idle again, whatever a test did to it."""
        eventually(self._resumed, within=30, why="all nodes idle")

    def _resumed(self) -> bool:
        held = [node for node, state in self.states().items() if state not in ("idle", "comp")]
        for node in held:
            self.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        return set(self.states().values()) == {"idle"}

    def clean(self) -> None:
        """What a test must leave for the next one."""
        if self._controller.exists():
            self.resume_controller()
        else:
            self.start_controller()
        self._heal_nodes()
        self._drop_reservations()
        self.cancel_all()
        self.resume_all()

    def _drop_reservations(self) -> None:
        shown = self.run("scontrol", "-o", "show", "reservation").stdout
        for name in re.findall(r"^ReservationName=(\S+)", shown, re.MULTILINE):
            self.run("scontrol", "delete", f"reservationname={name}")

    def _heal_nodes(self) -> None:
        for node, number in list(self._hurt.items()):
            if number == signal.SIGSTOP:
                self.signal_node(node, signal.SIGCONT)
            elif number != signal.SIGCONT:
                self.start_node(node)
        self._hurt.clear()

    def stop(self) -> None:
        self._world.stop()
