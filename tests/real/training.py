"""Training runs on the test cluster: tests/real/trainer.sh, its knobs and its gauges."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.real.slurm import SlurmCluster

SCRIPT = Path(__file__).with_name("trainer.sh")


@dataclass
class Training:
    """One session: its folder with checkpoints and gauges, and the job it was submitted as."""

    slurm: SlurmCluster
    folder: Path
    job: str

    def control(self, *knobs: str) -> None:
        """Replaces the knobs (fail, hang, no_save, max_step=N); none lifts them all."""
        part = self.folder / "control.part"
        part.write_text("\n".join(knobs) + "\n")
        part.rename(self.folder / "control")

    def gauge(self, name: str, job: str | None = None) -> float | None:
        """What the trainer exports now, for example train_step; None before it does."""
        file = self.folder / f"{job or self.job}.prom"
        found = re.search(rf"^{name}{{.*}} (.+)$", file.read_text(), re.MULTILINE) if file.exists() else None
        return float(found[1]) if found else None


def submit(
    slurm: SlurmCluster, folder: Path, *sbatch_args: str, nodes: int = 4, knobs: str = "", **env: str
) -> Training:
    """A job of whole nodes that Slurm may requeue. `env` are the trainer's variables, as TRAINER_STEP_S="0.1"."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    args = [f"--job-name={folder.name}", f"--nodes={nodes}", "--gpus-per-node=8", "--requeue",
            "--account=research", "--open-mode=append", f"--output={folder}/log", *sbatch_args]  # fmt: skip
    settings = {"TRAINER_DIR": str(folder), "TRAINER_CONTROL": knobs, **env}
    return Training(slurm, folder, slurm.submit(SCRIPT, *args, env=settings))
