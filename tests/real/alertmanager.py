"""A real Alertmanager that tells a receiver of everything, and a pager of what is ours."""

import json
import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.real.supervise import Process, eventually, free_port


class Alertmanager:
    """bot: where its webhook goes, with the bearer token. What carries source="xidbot" goes to `pager` as well."""

    def __init__(self, root: Path, bot: str, token: str, pager: str) -> None:
        self.root = root
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        root.mkdir(parents=True, exist_ok=True)
        (root / "am.yml").write_text(json.dumps(self._config(bot, token, pager)))  # JSON is YAML
        argv = ["prometheus-alertmanager", f"--config.file={root}/am.yml", f"--storage.path={root}/data",
                f"--web.listen-address=127.0.0.1:{self.port}", "--cluster.listen-address=",
                "--log.level=debug"]  # fmt: skip
        self._process = Process(argv, root / "alertmanager.log")
        try:
            eventually(self._ready, every=0.02, why="Alertmanager is ready")
        except AssertionError as error:
            self.stop()
            raise AssertionError(f"{error}\n{self._process.tail()}") from None

    def _config(self, bot: str, token: str, pager: str) -> dict[str, Any]:
        bearer = {"authorization": {"credentials": token}}
        receivers = [
            {"name": "bot", "webhook_configs": [{"url": bot, "http_config": bearer}]},
            {"name": "pager", "webhook_configs": [{"url": pager}]},
        ]
        fast = {"group_wait": "0s", "group_interval": "200ms", "repeat_interval": "1h"}
        ours = {"receiver": "pager", "matchers": ['source="xidbot"', 'severity="page"'], "continue": True}
        routes = [ours, {"receiver": "bot", "matchers": []}]
        return {"route": {"receiver": "bot", "group_by": ["..."], **fast, "routes": routes}, "receivers": receivers}

    def _ready(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)

    def fire(self, *alerts: dict[str, Any]) -> None:
        body = json.dumps(alerts).encode()
        request = urllib.request.Request(f"{self.url}/api/v2/alerts", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert answer.status == 200

    def alerts(self) -> list[dict[str, Any]]:
        """What fires now, silenced or not."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found

    def amtool(self, *words: str) -> str:
        argv = ["amtool", f"--alertmanager.url={self.url}", *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    def stop(self) -> None:
        self._process.stop()


class PagerDuty:
    """Whom a route wakes: a webhook that keeps what it got."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    def calls(self, alertname: str) -> list[str]:
        """firing or resolved, in the order it was told of this alert."""
        alerts = [alert for body in self.got for alert in body["alerts"]]
        return [alert["status"] for alert in alerts if alert["labels"]["alertname"] == alertname]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
