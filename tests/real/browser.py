"""Headless Chromium, driven over chromedriver's own HTTP protocol (W3C WebDriver)."""

from __future__ import annotations

import base64
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import requests

from tests.real.supervise import Process, eventually, free_port

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key that the protocol names elements by
GONE = "stale element reference"  # the protocol's word for an element that is no longer part of the page
REDRAWN = 20  # times that the page may draw an element anew between the search for it and its use
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "ArrowDown": "\ue015", "ArrowUp": "\ue013"}
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
)  # fmt: skip


def missing() -> str:
    """Why no browser can be started here; empty when one can."""
    absent = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"not installed: {', '.join(absent)}" if absent else ""


class Gone(Exception):
    """The element was replaced after it was found."""


class Browser:
    """One window with an empty profile below `root`."""

    def __init__(self, root: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        root.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self._process = Process(["chromedriver", f"--port={port}"], root / "chromedriver.log", cwd=root)
        self._base = f"http://127.0.0.1:{port}"
        try:
            eventually(lambda: self._ask("GET", "/status")["ready"], every=0.05, why="chromedriver is ready")
            self._session = f"/session/{self._begin(root, width, height)}"
        except AssertionError:
            self.stop()
            raise
        self._emulate(dark)

    def _begin(self, root: Path, width: int, height: int) -> str:
        args = [*FLAGS, f"--user-data-dir={root / 'profile'}", f"--window-size={width},{height}"]
        options = {"args": args, "binary": shutil.which("chromium")}
        wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
        return str(self._ask("POST", "/session", wanted)["sessionId"])

    def _emulate(self, dark: bool) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        told = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
        self._ask("POST", f"{self._session}/goog/cdp/execute", told)

    def _ask(self, verb: str, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = requests.request(verb, self._base + path, json=body if verb == "POST" else None, timeout=30)
        value = answer.json()["value"]
        if not answer.ok and value["error"] == GONE:
            raise Gone(path)
        assert answer.ok, f"{path}: {value}"
        return value

    def open(self, url: str) -> None:
        self._ask("POST", f"{self._session}/url", {"url": url})

    def script(self, text: str, *arguments: object) -> Any:
        return self._ask("POST", f"{self._session}/execute/sync", {"script": text, "args": list(arguments)})

    def _with(self, css: str, verb: str, what: str, body: dict[str, Any] | None = None) -> Any:
        """Asks the first such element, once there is one; the next that has taken its place when the page drew anew."""
        for _ in range(REDRAWN):
            with suppress(Gone):
                return self._ask(verb, f"{self.find(css)}/{what}", body)
        raise AssertionError(f"{css} is drawn anew all the time")

    def find(self, css: str) -> str:
        """The path of the first such element, once there is one."""
        wanted = {"using": "css selector", "value": css}
        found = eventually(lambda: self._ask("POST", f"{self._session}/elements", wanted), every=0.05, why=css)
        return f"{self._session}/element/{found[0][ELEMENT]}"

    def count(self, css: str) -> int:
        return len(self._ask("POST", f"{self._session}/elements", {"using": "css selector", "value": css}))

    def click(self, css: str) -> None:
        self._with(css, "POST", "click", {})

    def keys(self, css: str, text: str) -> None:
        self._with(css, "POST", "value", {"text": KEYS.get(text, text)})

    def text(self, css: str) -> str:
        return str(self._with(css, "GET", "text"))

    def complaints(self) -> list[str]:
        """What the browser has to say about the page: script errors, refused requests."""
        found = self._ask("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in found]

    def shot(self, path: Path) -> Path:
        path.write_bytes(base64.b64decode(self._ask("GET", f"{self._session}/screenshot")))
        return path

    def stop(self) -> None:
        """chromedriver takes its Chromium with it; the group is killed in any case."""
        self._process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ask("DELETE", self._session)
        self.stop()
