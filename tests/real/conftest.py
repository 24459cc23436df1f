"""The real parts as fixtures. Each is started once and handed to every test as good as new."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real import training
from tests.real.exporter import Exporter
from tests.real.prometheus import Prometheus
from tests.real.slack import LocalSlack
from tests.real.slurm import SlurmCluster


@pytest.fixture(scope="session")
def real_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the accounts of the bot, the gate and the jobs may pass through; pytest's own are closed."""
    root, base = tmp_path_factory.mktemp("real"), tmp_path_factory.getbasetemp()
    for folder in (root, base, base.parent):
        if folder is not base.parent or folder.name.startswith("pytest-of-"):
            folder.chmod(folder.stat().st_mode | 0o055)
    return root


@pytest.fixture(scope="session")
def slurm_cluster(real_root: Path) -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(real_root / "slurm")
    yield cluster
    cluster.stop()


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """Eight idle nodes and no job, again after each test."""
    yield slurm_cluster
    slurm_cluster.clean()


@pytest.fixture(scope="session")
def exporter_server() -> Iterator[Exporter]:
    exporter = Exporter()
    yield exporter
    exporter.stop()


@pytest.fixture
def exporter(exporter_server: Exporter) -> Exporter:
    """Eight healthy nodes."""
    exporter_server.reset()
    return exporter_server


@pytest.fixture(scope="session")
def prometheus_server(real_root: Path, exporter_server: Exporter) -> Iterator[Prometheus]:
    prometheus = Prometheus(real_root / "prometheus", exporter_server)
    prometheus.scraped()
    yield prometheus
    prometheus.stop()


@pytest.fixture
def prom(exporter: Exporter, prometheus_server: Prometheus) -> Prometheus:
    """Scrapes `exporter` each second and remembers nothing of the test before."""
    prometheus_server.resume()
    prometheus_server.forget()
    return prometheus_server


@pytest.fixture(scope="session")
def slack_server(real_root: Path) -> Iterator[LocalSlack]:
    slack = LocalSlack(real_root / "slack")
    yield slack
    slack.stop()


@pytest.fixture
def slack(slack_server: LocalSlack) -> LocalSlack:
    """The workspace without messages."""
    slack_server.resume()
    slack_server.reset()
    return slack_server


@pytest.fixture
def train(slurm: SlurmCluster, exporter: Exporter, request: pytest.FixtureRequest) -> Callable[..., training.Training]:
    """train("session-123", nodes=4, knobs="max_step=40", TRAINER_STEP_S="0.1") submits a training job whose
    gauges the exporter shows."""

    def submit(name: str, *sbatch_args: str, **options: object) -> training.Training:
        home = slurm.work / request.node.name.replace("/", "-")
        home.mkdir(exist_ok=True)
        exporter.trainers.append(home / name)
        return training.submit(slurm, home / name, *sbatch_args, **options)  # type: ignore[arg-type]

    return submit
