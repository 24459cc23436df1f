"""Bolt and the socket: what arrives from Slack, acknowledged within 3 s whatever else hangs."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor

import websocket
from slack_bolt import App
from slack_bolt.adapter.socket_mode.websocket_client import SocketModeHandler
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.lazy_listener import ThreadLazyListenerRunner

from bot.errors import AuthFailed, RateLimited, Rejected, SourceError
from bot.model import Request
from bot.slack.client import REMEDIES, TIMEOUT, Tokens, sdk_logger, slack_errors, web_client
from bot.slack.listeners import COMMANDS, Listeners

log = logging.getLogger(__name__)

ACK_THREADS = 32  # Bolt's 5 let acks wait behind each other
CLOSE_NORMAL = websocket.STATUS_NORMAL.to_bytes(2, "big")
SILENT_PINGS = 3  # without any sign of Slack: a new session


def build_app(
    tokens: Tokens,
    inbox: Callable[[Request], None],
    *,
    base_url: str = "",
    commands: Mapping[str, str] = COMMANDS,
    ping_interval: float = 10,
    clock: Callable[[], float] = time.time,
) -> SlackApp:
    """Asks Slack nothing yet. inbox: records one Request durably and wakes the loops; called on one thread, in order.

    commands: the slash commands of the manifest → the word each stands for ("" = the rest of the line says it).
    """
    return SlackApp(tokens, Listeners(inbox, clock), commands, base_url, ping_interval)


class SlackApp:
    """What arrives from Slack, by Socket Mode. `problem` says why it does not, empty when it does."""

    def __init__(
        self,
        tokens: Tokens,
        listeners: Listeners,
        commands: Mapping[str, str],
        base_url: str,
        ping_interval: float,
    ) -> None:
        self._tokens = tokens
        self._base_url = base_url
        self._ping = ping_interval
        self._acks = ThreadPoolExecutor(ACK_THREADS, "slack-ack")
        self._records = ThreadPoolExecutor(1, "slack-record")
        self.bolt = _make_bolt(tokens, base_url, self._acks, self._records)
        listeners.register(self.bolt, commands)
        self.problem = "not started"
        self._socket: SocketModeHandler | None = None
        self._heard_at, self._tried_at, self._last_pong = 0.0, 0.0, 0.0
        self._failures = 0
        self._wake = threading.Event()
        self._stopping = False
        self._watcher = threading.Thread(target=self._watch_on, name="slack-watch", daemon=True)

    def start(self) -> None:
        """Returns at once; while Slack cannot be reached it goes on trying. Raises AuthFailed for wrong tokens."""
        # Without a limit a server that accepts and says nothing holds the handshake, and all of Socket Mode, for ever.
        websocket.setdefaulttimeout(TIMEOUT)
        self._socket = self._make_socket()
        self._heard_at = time.monotonic()
        try:
            self._connect()
        except (AuthFailed, Rejected) as error:
            self.stop()
            remedy = error.remedy or REMEDIES["invalid_auth"]
            raise AuthFailed("slack", error.message.removeprefix("slack: "), remedy) from error
        except SourceError as error:
            self._failed(error)
        self._watcher.start()

    def stop(self) -> None:
        """What was acknowledged is recorded before this returns."""
        self._stopping = True
        self._wake.set()
        if self._watcher.is_alive():
            self._watcher.join()
        if self._socket is not None:
            self._drop()
            self._socket.close()  # type: ignore[no-untyped-call]
            self._socket = None
        self._acks.shutdown()
        self._records.shutdown()

    @property
    def connected(self) -> bool:
        """The socket is open and Slack was heard on it lately."""
        session = self._socket.client.current_session if self._socket else None
        silent = time.monotonic() - self._heard_at
        return bool(session and _ready(session)) and silent <= SILENT_PINGS * self._ping

    def watch(self) -> None:
        """One look. An open socket may be deaf for hours: what counts is when Slack was last heard on it."""
        if self._due():
            log.warning("connecting to Slack anew; last heard of it %.0f s ago", time.monotonic() - self._heard_at)
            try:
                self._connect()
            except SourceError as error:
                self._failed(error)

    def _make_socket(self) -> SocketModeHandler:
        """The SDK's own reconnecting is off: it opens two sockets at each start (its monitor looks before the first
        one is up), tries a used ticket twice a second while Slack is away, and takes a deaf socket for a good one."""
        handler = SocketModeHandler(
            self.bolt,
            self._tokens.app,
            logger=sdk_logger("socket"),
            web_client=web_client(self._tokens.app, self._base_url),
            ping_interval=self._ping,
        )
        client = handler.client
        client.auto_reconnect_enabled = client.default_auto_reconnect_enabled = False
        # The SDK's way, taken when Slack asks for a new socket, leaves its reader on the closed one for 10 s.
        client.connect_to_new_endpoint = lambda force=False: self._anew()  # type: ignore[method-assign]
        client.on_open_listeners.append(lambda _session: self._heard())
        client.on_message_listeners.append(lambda _session, _message: self._heard())
        client.on_close_listeners.append(self._closed)
        return handler

    def _connect(self) -> None:
        assert self._socket is not None
        self._tried_at = time.monotonic()
        self._drop()
        client = self._socket.client
        with slack_errors("apps.connections.open"):
            client.wss_uri = str(client.web_client.apps_connections_open(app_token=self._tokens.app)["url"])
            client.connect()

    def _due(self) -> bool:
        """Closed: soon, then ever more rarely. Silent, or never opened: after three pings."""
        assert self._socket is not None
        session, now = self._socket.client.current_session, time.monotonic()
        if session is None:
            return now >= self._tried_at + backoff(self._failures)
        if session.last_pong_tm and session.last_pong_tm != self._last_pong:
            self._last_pong = session.last_pong_tm
            self._heard()
        return now - max(self._heard_at, self._tried_at) > SILENT_PINGS * self._ping

    def _drop(self) -> None:
        """Without a session the SDK's runner waits for the next one; else it would go on with the old ticket."""
        assert self._socket is not None
        session, self._socket.client.current_session = self._socket.client.current_session, None
        if session is not None:
            _hang_up(session)

    def _anew(self) -> None:
        self._drop()
        self._wake.set()

    def _closed(self, session: websocket.WebSocketApp) -> None:
        if self._socket is not None and session is self._socket.client.current_session:
            self._socket.client.current_session = None
            self._failures += 1
            self._wake.set()

    def _heard(self) -> None:
        self._heard_at = time.monotonic()
        self._failures = 0
        self.problem = ""

    def _failed(self, error: SourceError) -> None:
        self._failures += 1
        if isinstance(error, RateLimited):
            self._tried_at += error.retry_after
        self.problem = str(error)
        log.warning("no socket to Slack: %s", error)

    def _watch_on(self) -> None:
        while not self._stopping:
            self._wake.wait(min(self._ping / 2, 1))
            self._wake.clear()
            if not self._stopping:
                self.watch()


def backoff(failures: int) -> float:
    """Seconds: 0 after a socket that worked, then 1, 2, 4, … 30: Slack limits how often sockets are opened."""
    return 0 if failures <= 1 else min(30, 2.0 ** (failures - 2))


def _hang_up(session: websocket.WebSocketApp) -> None:
    """Says goodbye and wakes the thread that reads: closing alone leaves it waiting for up to 10 s."""
    session.keep_running = False
    connection = session.sock
    if connection is None or connection.sock is None:
        return
    with contextlib.suppress(OSError, websocket.WebSocketException):
        if connection.connected:
            connection.send(CLOSE_NORMAL, websocket.ABNF.OPCODE_CLOSE)  # send_close() would keep it from being closed
    with contextlib.suppress(OSError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _make_bolt(tokens: Tokens, base_url: str, acks: Executor, records: Executor) -> App:
    """`authorize` asks nobody: with auth.test Bolt would not start without Slack, or lose the first ack."""

    def authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:  # no method: Bolt would pass self
        return AuthorizeResult(enterprise_id=enterprise_id, team_id=team_id, bot_token=tokens.bot)

    bolt = App(client=web_client("", base_url), authorize=authorize, logger=sdk_logger("bolt"), listener_executor=acks)
    runner = bolt.listener_runner
    runner.lazy_listener_runner = ThreadLazyListenerRunner(runner.logger, records)
    return bolt


def _ready(session: websocket.WebSocketApp) -> bool:
    """Its handshake is over: the SDK calls a session connected before."""
    return bool(session.ready())  # type: ignore[no-untyped-call]
