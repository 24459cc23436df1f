"""A real VictoriaMetrics, which a recording is imported into."""

import urllib.request
from collections.abc import Iterable
from pathlib import Path

from tests.real.supervise import Process, eventually, free_port


class VictoriaMetrics:
    """Empty, and keeps whatever it is given."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        argv = ["victoria-metrics", f"-storageDataPath={root}/data", "-retentionPeriod=100y",
                f"-httpListenAddr=127.0.0.1:{port}", "-loggerLevel=WARN"]  # fmt: skip
        self._process = Process(argv, root / "victoria-metrics.log")
        try:
            eventually(lambda: self._get("/health") == b"OK", every=0.02, why="VictoriaMetrics is ready")
        except AssertionError as error:
            self.stop()
            raise AssertionError(f"{error}\n{self._process.tail()}") from None

    def load(self, files: Iterable[Path]) -> None:
        """JSON lines; what was loaded is found from then on."""
        for path in files:
            with path.open("rb") as lines:
                size = {"Content-Length": str(path.stat().st_size)}
                urllib.request.urlopen(urllib.request.Request(f"{self.url}/api/v1/import", lines, size), timeout=120)
        self._get("/internal/force_flush")

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
            return bytes(answer.read())

    def stop(self) -> None:
        self._process.stop()
