"""Bolt and the socket: what arrives from Slack, acknowledged within 3 s whatever else hangs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor

import websocket
from slack_bolt import App
from slack_bolt.adapter.socket_mode.websocket_client import SocketModeHandler
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.lazy_listener import ThreadLazyListenerRunner
from slack_sdk import WebClient

from bot.errors import AuthFailed, BadReply, Rejected, SourceError, Unreachable
from bot.model import Request
from bot.slack.client import REMEDIES, TIMEOUT, Tokens, sdk_logger, slack_errors, web_client
from bot.slack.listeners import COMMANDS, Listeners

log = logging.getLogger(__name__)

ACK_THREADS = 32  # Bolt's 5 let acks wait behind each other
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
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch_on, name="slack-watch", daemon=True)

    def start(self) -> None:
        """Returns at once; while Slack cannot be reached it goes on trying. Raises AuthFailed for wrong tokens."""
        # Without a limit a server that accepts and says nothing holds the handshake, and all of Socket Mode, for ever.
        websocket.setdefaulttimeout(TIMEOUT)
        client = web_client(self._tokens.app, self._base_url)
        self._socket = SocketModeHandler(
            self.bolt,
            self._tokens.app,
            logger=sdk_logger("socket"),
            web_client=client,
            ping_interval=self._ping,
        )
        self._socket.client.on_open_listeners.append(lambda _session: self._heard())
        self._socket.client.on_message_listeners.append(lambda _session, _message: self._heard())
        self._heard_at = self._tried_at = time.monotonic()
        try:
            self._first_connection(client)
        except SourceError:
            self.stop()
            raise
        self._watcher.start()

    def _first_connection(self, client: WebClient) -> None:
        assert self._socket is not None
        try:
            with slack_errors("apps.connections.open"):
                self._socket.client.wss_uri = str(client.apps_connections_open(app_token=self._tokens.app)["url"])
                self._socket.connect()  # type: ignore[no-untyped-call]
        except Rejected as error:
            raise AuthFailed("slack", error.message, error.remedy or REMEDIES["invalid_auth"]) from error
        except (Unreachable, BadReply) as error:
            self._deaf(error)

    def stop(self) -> None:
        """What was acknowledged is recorded before this returns."""
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join()
        if self._socket is not None:
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
        assert self._socket is not None
        client = self._socket.client
        pong = client.current_session.last_pong_tm if client.current_session else 0.0
        if pong and pong != self._last_pong:
            self._last_pong = pong
            self._heard()
        now, patience = time.monotonic(), SILENT_PINGS * self._ping
        if now - max(self._heard_at, self._tried_at) <= patience:
            return
        log.warning("nothing heard of Slack for %.0f s: connecting anew", now - self._heard_at)
        self._tried_at = now
        try:
            with slack_errors("apps.connections.open"):
                client.connect_to_new_endpoint(force=True)
        except SourceError as error:
            self._deaf(error)

    def _watch_on(self) -> None:
        while not self._stopping.wait(self._ping / 2):
            self.watch()

    def _heard(self) -> None:
        self._heard_at = time.monotonic()
        self.problem = ""

    def _deaf(self, error: SourceError) -> None:
        self.problem = str(error)
        log.warning("no socket to Slack: %s", error)


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
