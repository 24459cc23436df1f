"""A real NFS mount: a guest that QEMU emulates mounts a real nfs-ganesha and tells of it by its own node_exporter.

The machine's own kernel needs neither NFS nor modules nor KVM. The guest's kernel is Debian's, unpacked below
$XIDBOT_GUEST_KERNEL or .work/kernel (`make test-slow` fetches it).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.real.supervise import Process, eventually, free_port

T = TypeVar("T")
KERNEL = Path(os.environ.get("XIDBOT_GUEST_KERNEL") or Path(__file__).parents[2] / ".work/kernel")
PROGRAMS = ("qemu-system-x86_64", "ganesha.nfsd", "busybox", "cpio", "depmod", "modprobe", "prometheus-node-exporter")
MODULES = ("virtio_pci", "virtio_net", "nfsv4")
HOST = "10.0.2.2"  # as QEMU's user network shows the machine to its guest
EXPORT = f"{HOST}:/ckpt"
PIECES, PIECE = 8, 4  # of a save, MiB of each (four requests at once)

# A save is a file of its own that takes its name when it is whole. It writes in pieces with a pause after each, so that
# it takes its time on a fast machine too.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
while read module; do insmod /lib/modules/$module; done < /lib/modules/order
ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0; ip route add default via {host}
until mount -t nfs -o vers=4.1,proto=tcp,port={port},addr={host},clientaddr=10.0.2.15,sec=sys,hard,timeo=20,retrans=1 \\
    {host}:/ckpt /mnt; do sleep 1; done
prometheus-node-exporter --collector.disable-defaults --collector.mountstats \\
    --web.disable-exporter-metrics --web.listen-address=:9100 2>/dev/null &
save=0
while true; do
    save=$((save + 1)); piece=0
    while [ $piece -lt {pieces} ]; do
        dd if=/dev/zero of=/mnt/step-$((save % 3)).part bs={piece}M count=1 seek=$piece conv=notrunc,fsync 2>/dev/null
        piece=$((piece + 1)); usleep 100000
    done
    mv /mnt/step-$((save % 3)).part /mnt/step-$((save % 3))
    echo "saved $save"; sleep {rest}
done
"""

GANESHA = """
NFS_CORE_PARAM {{ NFS_Port = {port}; MNT_Port = {mnt}; Protocols = 4; Bind_addr = 127.0.0.1; Enable_NLM = false;
    Enable_RQUOTA = false; fsid_device = true; }}
NFSV4 {{ Grace_Period = 1; Lease_Lifetime = 10; Minor_Versions = 0, 1; Allow_Numeric_Owners = true;
    Only_Numeric_Owners = true; RecoveryRoot = {root}/recovery; }}
EXPORT {{ Export_Id = 1; Path = {root}/export; Pseudo = /ckpt; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
    Transports = TCP; Protocols = 4; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = EVENT; }}
"""


def missing() -> list[str]:
    """Why it cannot run here; empty when it can."""
    reasons = [f"{program} is not installed" for program in PROGRAMS if not shutil.which(program)]
    if not list(KERNEL.glob("boot/vmlinuz-*")):
        reasons.append(f"no guest kernel in {KERNEL} (make test-slow fetches it)")
    return reasons


class Distance:
    """What lies between client and server: it hands on each answer `seconds` after it was given, as a server does that
    takes so long for it. Connections and the order of bytes stay."""

    def __init__(self, server: int) -> None:
        self.seconds, self.port, self._server = 0.0, free_port(), server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._listening = self._ask(asyncio.start_server(self._connect, "127.0.0.1", self.port))

    def stop(self) -> None:
        self._ask(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _ask(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    async def _end(self) -> None:
        self._listening.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connect(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        try:
            server, questions = await asyncio.open_connection("127.0.0.1", self._server)
        except OSError:
            return answers.close()
        try:
            await self._both_ways(client, answers, server, questions)
        finally:
            answers.close()
            questions.close()

    async def _both_ways(
        self,
        client: asyncio.StreamReader,
        answers: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        questions: asyncio.StreamWriter,
    ) -> None:
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        with suppress(asyncio.CancelledError):  # at the end of the test
            await asyncio.gather(_pass_on(client, questions), self._keep(server, late), self._hand_on(late, answers))

    async def _keep(self, server: asyncio.StreamReader, late: asyncio.Queue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            data = await _read(server)
            late.put_nowait((self._loop.time() + self.seconds, data))

    async def _hand_on(self, late: asyncio.Queue[tuple[float, bytes]], answers: asyncio.StreamWriter) -> None:
        while True:
            due, data = await late.get()
            await asyncio.sleep(due - self._loop.time())
            if not data:
                return
            answers.write(data)
            await answers.drain()


async def _pass_on(client: asyncio.StreamReader, questions: asyncio.StreamWriter) -> None:
    while data := await _read(client):
        questions.write(data)
        await questions.drain()
    questions.write_eof()


async def _read(stream: asyncio.StreamReader) -> bytes:
    """Empty at the end, however it ended."""
    try:
        return await stream.read(2**16)
    except OSError:
        return b""


class NfsServer:
    """nfs-ganesha on loopback that exports a folder below `root`. Clients mount it at `port`."""

    def __init__(self, root: Path) -> None:
        self.root, own = root, free_port()
        for folder in ("export", "recovery"):
            (root / folder).mkdir(parents=True)
        (root / "ganesha.conf").write_text(GANESHA.format(root=root, port=own, mnt=free_port()))
        argv: list[str | Path] = [
            "ganesha.nfsd",
            "-F",
            "-f",
            root / "ganesha.conf",
            "-L",
            root / "ganesha.log",
            "-p",
            root / "ganesha.pid",
        ]
        self._process = Process(argv, root / "ganesha.out")
        self._distance = Distance(own)
        self.port = self._distance.port

    def writes(self) -> bool:
        """A save is under way and a third of it is written."""
        parts = [file.stat().st_size for file in (self.root / "export").glob("*.part")]
        return max(parts, default=0) >= PIECES // 3 * PIECE * 2**20

    def hang(self) -> None:
        """Connections stay, nothing is answered."""
        self._process.pause()

    def slow(self, seconds: float) -> None:
        """Each answer comes so much later."""
        self._distance.seconds = seconds

    def answer(self) -> None:
        """Again, and at full speed."""
        self._process.resume()
        self._distance.seconds = 0.0

    def stop(self) -> None:
        self.answer()
        self._process.stop()
        self._distance.stop()


class Guest:
    """Mounts the server, saves again and again, and shows its node_exporter at `target`."""

    def __init__(self, root: Path, server: NfsServer, rest: int) -> None:
        """rest: s from one save to the next."""
        self.root, port = root, free_port()
        self.target = f"127.0.0.1:{port}"
        root.mkdir(parents=True, exist_ok=True)
        kernel = next(iter(KERNEL.glob("boot/vmlinuz-*")))
        initrd = initramfs(
            root,
            kernel.name.removeprefix("vmlinuz-"),
            INIT.format(host=HOST, port=server.port, pieces=PIECES, piece=PIECE, rest=rest),
        )
        argv: list[str | Path] = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1", "-m", "512", "-nographic",
                "-no-reboot", "-kernel", kernel, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=1",
                "-nic", f"user,model=virtio-net-pci,hostfwd=tcp:{self.target}-:9100", "-monitor", "none",
                "-serial", f"file:{root}/console.log"]  # fmt: skip
        self._process = Process(argv, root / "qemu.log")

    def saved(self) -> int:
        """Saves that it has completed."""
        return self.console().count("\nsaved ")

    def console(self) -> str:
        return (self.root / "console.log").read_text(errors="replace")

    def saves(self, count: int, within: float = 120) -> None:
        """Waits for so many completed saves."""
        eventually(
            lambda: self.saved() >= count, within=within, why=f"{count} saves; console:\n{self.console()[-2000:]}"
        )

    def stop(self) -> None:
        self._process.stop()


def initramfs(root: Path, version: str, init: str) -> Path:
    """Busybox, node_exporter with its libraries and the modules of an NFS client, in the order in which they load."""
    tree = root / "initramfs"
    for folder in ("bin", "dev", "proc", "sys", "mnt", "tmp", "lib/modules", "lib64"):
        (tree / folder).mkdir(parents=True)
    order = _modules(version)
    for module in order:
        shutil.copy(module, tree / "lib/modules")
    (tree / "lib/modules/order").write_text("".join(f"{module.name}\n" for module in order))
    for program in ("busybox", "prometheus-node-exporter"):
        shutil.copy(_found(program), tree / "bin")
    for library in _libraries(_found("prometheus-node-exporter")):
        (tree / library.parent.relative_to("/")).mkdir(parents=True, exist_ok=True)
        shutil.copy(library, tree / library.relative_to("/"))
    (tree / "init").write_text(init)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*"))).encode()
    with (root / "initrd").open("wb") as out:
        subprocess.run(("cpio", "--create", "--format=newc", "--quiet"), input=names, stdout=out, cwd=tree, check=True)
    return root / "initrd"


def _modules(version: str) -> list[Path]:
    subprocess.run(("depmod", "-b", KERNEL, version), check=True)
    found: dict[Path, None] = {}
    for module in MODULES:
        argv = ("modprobe", "-d", KERNEL, "-S", version, "--show-depends", module)
        for line in _words(argv).splitlines():
            if line.startswith("insmod "):
                found[Path(line.split()[1])] = None
    return list(found)


def _libraries(program: Path) -> list[Path]:
    lines = _words(("ldd", program)).splitlines()
    return [Path(word) for line in lines for word in line.split() if word.startswith("/")]


def _found(program: str) -> Path:
    path = shutil.which(program)
    assert path, f"{program} is not installed"
    return Path(path).resolve()


def _words(argv: Sequence[str | Path]) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
