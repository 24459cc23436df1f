"""Slurm's accounting for a test cluster: MariaDB and slurmdbd with our accounts in them."""

import subprocess
from pathlib import Path

from tests.real.supervise import Namespace, eventually, free_port

# The bot's own account has no administrator level: Slurm itself refuses its writes. Only the gate's may drain.
USERS = (
    "user root,xidbot-gate account=research adminlevel=Administrator",
    "user trainer,xidbot account=research",
)

SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={root}/munge/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
LogFile={root}/log/slurmdbd.log
PidFile={root}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={mysql_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
"""
DATABASE = """\
create database slurm_acct_db;
create user slurm@'127.0.0.1' identified by 'slurm';
create user slurm@localhost identified by 'slurm';
grant all on slurm_acct_db.* to slurm@'127.0.0.1';
grant all on slurm_acct_db.* to slurm@localhost;
"""


class Accounting:
    """slurmdbd on `port`, in the cluster's namespace."""

    def __init__(self, root: Path, host: str, world: Namespace, env: dict[str, str]) -> None:
        self.root, self._world, self._env = root, world, env
        self.port, self._mysql_port = free_port(), free_port()
        self._start_mariadb()
        self._start_slurmdbd(host)

    def _start_mariadb(self) -> None:
        data, sock = self.root / "mysql", self.root / "run/mysql.sock"
        data.mkdir()
        self._run(
            "mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root",
            "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
        )  # fmt: skip
        self._world.start(
            ["mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={sock}", "--user=root",
             "--bind-address=127.0.0.1", f"--port={self._mysql_port}", f"--pid-file={self.root}/run/mariadbd.pid",
             "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"],
            self.root / "log/mariadbd.log",
        )  # fmt: skip
        client = ("mariadb", "--no-defaults", "-uroot", "-S", str(sock))
        eventually(lambda: self._run(*client, "-e", "select 1"), within=20, every=0.05, why="MariaDB answers")
        self._run(*client, text=DATABASE)

    def _start_slurmdbd(self, host: str) -> None:
        conf = self.root / "etc/slurmdbd.conf"
        conf.touch(mode=0o600)  # slurmdbd refuses a file that others can read
        conf.write_text(SLURMDBD_CONF.format(root=self.root, host=host, port=self.port, mysql_port=self._mysql_port))
        self._world.start(["slurmdbd", "-D"], self.root / "log/slurmdbd.out")

    def add_users(self, cluster: str) -> None:
        answers = "sacctmgr", "-n", "show", "cluster"
        eventually(lambda: self._run(*answers), within=20, every=0.05, why="slurmdbd answers")
        for what in (f"cluster {cluster}", "account research", *USERS):
            self._run("sacctmgr", "-i", "add", *what.split())

    def _run(self, *argv: str, text: str = "") -> bool:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, env=self._env, timeout=60)
        assert done.returncode == 0, f"{argv[0]}: {done.stdout} {done.stderr}"
        return True
