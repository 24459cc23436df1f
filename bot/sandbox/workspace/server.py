"""The workspace on loopback: Web API, Socket Mode and page in one small server, on a thread of its own."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute

from bot.errors import ConfigError
from bot.sandbox.workspace.api import Api, arguments
from bot.sandbox.workspace.errors import Refused
from bot.sandbox.workspace.interactions import Interactions
from bot.sandbox.workspace.page import Page
from bot.sandbox.workspace.sockets import Sockets
from bot.sandbox.workspace.state import APP, Workspace
from commands import COMMANDS

T = TypeVar("T")
ANSWER_WITHIN = 10.0  # s for anything asked of the server's thread; an ack may take 3
STOP_WITHIN = 1  # s that requests under way get
MESSAGE_MAX = 1 << 20  # bytes of a frame from the app


def serve(workspace: Workspace, host: str = "127.0.0.1", port: int = 0) -> Server:
    """Reachable when this returns. port 0: any that is free. Raises ConfigError for one that is taken."""
    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        raise ConfigError(f"the local workspace cannot listen on {host}:{port}: {error.strerror}") from error
    return Server(workspace, listening)


class Server:
    """url: the page; whoever knows it acts as anybody. api_url and the two tokens: what a bot needs.

    type, click and disconnect do what people and Slack do, from any thread.
    """

    def __init__(self, workspace: Workspace, listening: socket.socket) -> None:
        host, port = listening.getsockname()[:2]
        base, secret = f"http://{host}:{port}", secrets.token_urlsafe(12)
        self.workspace = workspace
        self.url = f"{base}/{secret}/"
        self.api_url = f"{base}/api/"
        self.bot_token = f"xoxb-local-{secrets.token_hex(16)}"
        self.app_token = f"xapp-local-{secrets.token_hex(16)}"
        self._sockets = Sockets(APP, workspace.touch)
        slash = sorted({command.slack for command in COMMANDS})
        self._interactions = Interactions(workspace, self._sockets, base, slash)
        self._page = Page(workspace, self._sockets, self._interactions)
        self._api = Api(workspace, self._sockets, base, self.bot_token, self.app_token)
        self._run(Starlette(routes=self._routes(secret)), listening)

    def _routes(self, secret: str) -> list[Route | Mount | WebSocketRoute]:
        return [
            Route("/api/{method}", self._api.answer, methods=["GET", "POST"]),
            Route("/response/{secret}", self._respond, methods=["POST"]),
            Route("/upload/{secret}", self._upload, methods=["POST"]),
            WebSocketRoute("/link/", self._sockets.serve),
            Mount(f"/{secret}", routes=self._page.routes()),
        ]

    def _run(self, app: Starlette, listening: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="websockets-sansio",  # the other one is deprecated by websockets itself
            ws_max_size=MESSAGE_MAX,
            timeout_graceful_shutdown=STOP_WITHIN,
        )
        self._uvicorn = uvicorn.Server(config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=[listening], name="workspace", daemon=True)
        self._thread.start()

    def _serve(self, listening: socket.socket) -> None:
        """The socket listens already: whoever connects before uvicorn has begun only waits a little."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._uvicorn.serve(sockets=[listening]))

    def stop(self) -> None:
        self._page.closing = True
        self._uvicorn.should_exit = True
        self.workspace.touch()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- what people and Slack do --------------------------------------------------------------------------------

    @property
    def connected(self) -> int:
        """Sockets that the bot has open."""
        return self._sockets.connected

    def type(self, user: str, line: str) -> bool:
        """A line in the box, a slash command or a message. Whether the bot acknowledged in time."""
        return self._do(self._interactions.type(user, line))

    def click(
        self, user: str, ts: str, action_id: str, *, value: str | None = None, block_id: str | None = None
    ) -> bool:
        """A button of a message as it stands; with value and block_id one that only a stale page still shows.

        Whether the bot acknowledged in time. Raises Refused where there is no such message or button.
        """
        return self._do(self._interactions.click(user, ts, action_id, value=value, block_id=block_id))

    def disconnect(self, reason: str = "refresh_requested") -> None:
        """Slack asks the bot to connect anew."""
        self._do(self._sockets.disconnect(reason))

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(ANSWER_WITHIN)

    # -- addresses that carry their own permission ---------------------------------------------------------------

    async def _respond(self, request: Request) -> Response:
        try:
            self._interactions.respond(request.path_params["secret"], await arguments(request))
        except Refused as error:
            return JSONResponse({"ok": False, "error": error.code}, 404)
        return PlainTextResponse("ok")

    async def _upload(self, request: Request) -> Response:
        data = await request.body()
        try:
            self.workspace.files.receive(request.path_params["secret"], data)
        except Refused as error:
            return PlainTextResponse(error.code, 404)
        return PlainTextResponse(f"OK - {len(data)}")
