"""local-slack, a third party's Slack: Web API and Socket Mode, with people who type and click on demand."""

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import websocket

from tests.real import parts
from tests.real.supervise import Process, eventually, free_port

TEAM = "T01TEST"
BOT_TOKEN, APP_TOKEN = "xoxb-test-token", "xapp-test-token"
CHANNEL = "C01GPU"
ADMIN, OPERATOR, VIEWER, BOT = "U01ADMIN", "U02OPER", "U03VIEW", "U0BOT"
PEOPLE = {ADMIN: "alice", OPERATOR: "bob", VIEWER: "carol"}

Message = dict[str, Any]


class LocalSlack:
    """Everything is in its memory: a restart or a reset forgets messages, and a bot must cope with that.

    It checks little (any token, any block passes) and never limits: use FaultProxy for that.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.port = root, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.api = f"{self.url}/api/"
        root.mkdir(parents=True, exist_ok=True)
        (root / "workspace.json").write_text(json.dumps(_workspace()))
        self._start()

    def _start(self) -> None:
        argv: list[str | Path] = [
            parts.local_slack(),
            "--config",
            self.root / "workspace.json",
            "--port",
            str(self.port),
        ]
        argv += ["--base-host", "127.0.0.1", "--files-dir", self.root / "files"]
        self._process = Process(argv, self.root / "local-slack.log", cwd=self.root)
        try:
            eventually(lambda: self._control("state"), every=0.02, why="local-slack answers")
        except AssertionError as error:
            self.stop()
            raise AssertionError(f"{error}\n{self._process.tail()}") from None

    # -- what people do: each call returns when the bot has acknowledged, or after 5 s without ----------------

    def command(self, user: str, command: str, text: str = "", channel: str = CHANNEL) -> float:
        """Types a slash command; the seconds until the bot acknowledged it."""
        return self._act("command", channel=channel, user=user, command=command, text=text)

    def click(
        self,
        user: str,
        channel: str,
        ts: str,
        action_id: str,
        value: str | None = None,
        block_id: str | None = None,
    ) -> float:
        """Presses a button of a message as it stands now; a value or block given by hand is a stale client's.
        The seconds until the bot acknowledged."""
        if value is None or block_id is None:
            found = self.button(channel, ts, action_id)
            value, block_id = value or found["value"], block_id or found["block_id"]
        action = {"type": "button", "action_id": action_id, "block_id": block_id, "value": value}
        return self._act("interact", channel=channel, user=user, messageTs=ts, action=action)

    def say(self, user: str, text: str, channel: str = CHANNEL, thread_ts: str | None = None) -> float:
        return self._act("message", channel=channel, user=user, text=text, thread_ts=thread_ts)

    # -- what people see -----------------------------------------------------------------------------------------

    def messages(self, channel: str = CHANNEL) -> list[Message]:
        """All of the channel's, replies and ephemeral ones (`ephemeral_to`) too, oldest first."""
        messages: list[Message] = self._control(f"messages/{channel}")["messages"]
        return messages

    def thread(self, channel: str, ts: str) -> list[Message]:
        """The replies, without the message itself."""
        return [message for message in self.messages(channel) if message.get("thread_ts") == ts != message["ts"]]

    def message(self, channel: str, ts: str) -> Message:
        return next(message for message in self.messages(channel) if message["ts"] == ts)

    def buttons(self, channel: str, ts: str) -> list[Message]:
        """The buttons of a message, each with its block_id."""
        found = []
        for block in self.message(channel, ts).get("blocks") or []:
            for element in [*block.get("elements", []), block.get("accessory") or {}]:
                if element.get("type") == "button":
                    found.append({"value": "", **element, "block_id": block.get("block_id", "")})
        return found

    def button(self, channel: str, ts: str, action_id: str) -> Message:
        shown = self.buttons(channel, ts)
        for button in shown:
            if button["action_id"] == action_id:
                return button
        raise LookupError(f"no button {action_id}, only {[button['action_id'] for button in shown]}")

    # -- its own state -------------------------------------------------------------------------------------------

    def log(self) -> list[dict[str, Any]]:
        """Calls of the bot, envelopes and acknowledgements: `direction`, `kind`, `summary`, `detail`, `time` (ms)."""
        log: list[dict[str, Any]] = self._control("log")["log"]
        return log

    def connected(self) -> bool:
        """Whether a bot's socket is open now. The log shows only that one was opened."""
        page = websocket.create_connection(f"ws://127.0.0.1:{self.port}/ui", timeout=5)
        try:
            return bool(json.loads(page.recv())["state"]["apps"][0]["connected"])
        finally:
            page.close()

    def drop_sockets(self) -> None:
        """The kernel resets every connection; nothing is forgotten."""
        subprocess.run(["ss", "-K", "sport", "=", f":{self.port}"], check=True, capture_output=True)

    def reset(self) -> None:
        """The workspace as configured: no messages, an empty log. Sockets stay open."""
        self._post("reset")

    def restart(self, away: float = 0) -> None:
        """kill -9, `away` seconds of nobody listening, and back at the same address without a memory."""
        self.stop()
        time.sleep(away)
        self._start()

    def pause(self) -> None:
        """Slack hangs."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def stop(self) -> None:
        self._process.stop()

    def _act(self, what: str, **body: Any) -> float:
        begin = time.monotonic()
        self._post(what, **body)
        return time.monotonic() - begin

    def _post(self, what: str, **body: Any) -> None:
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_control/{what}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=15) as answer:
            assert json.load(answer)["ok"], what

    def _control(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/_control/{what}", timeout=5) as answer:
            result: dict[str, Any] = json.load(answer)
        return result


def _workspace() -> dict[str, Any]:
    app = {"appId": "A01XIDBOT", "botUserId": BOT, "botName": "xidbot", "botToken": BOT_TOKEN,
           "appToken": APP_TOKEN, "signingSecret": "test", "mode": "socket"}  # fmt: skip
    users = [
        {"id": user, "name": name, "real_name": name.title(), "email": f"{name}@example.com"}
        for user, name in PEOPLE.items()
    ]
    channel = {"id": CHANNEL, "name": "gpu-incidents", "members": [*PEOPLE, BOT]}
    return {
        "workspace": {"name": "Lab", "domain": "lab", "teamId": TEAM},
        "app": app,
        "users": users,
        "channels": [channel],
    }
