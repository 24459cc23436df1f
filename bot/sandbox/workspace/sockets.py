"""Socket Mode: what people do reaches the app in envelopes, each by exactly one connection, acknowledged within 3 s."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from starlette.websockets import WebSocket, WebSocketDisconnect

ACK_WITHIN = 3.0  # s; after that Slack tells the person that it did not work
CONNECTIONS = 10

Payload = dict[str, object]


@dataclass(eq=False, slots=True)
class Connection:
    """One socket of the app. gone: resolved when it is closed."""

    socket: WebSocket
    gone: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def send(self, frame: Payload) -> None:
        """A socket that breaks meanwhile is noticed where it is read."""
        try:
            await self.socket.send_text(json.dumps(frame))
        except (WebSocketDisconnect, RuntimeError):
            self.close()

    def close(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)


class Sockets:
    """The app's connections. on_change: called when one comes or goes."""

    def __init__(self, app: str, on_change: Callable[[], None]) -> None:
        self._app = app
        self._on_change = on_change
        self._tickets: set[str] = set()
        self._open: deque[Connection] = deque()
        self._waiting: dict[str, asyncio.Future[Payload]] = {}

    @property
    def connected(self) -> int:
        return len(self._open)

    def ticket(self) -> str:
        """Opens one connection, once."""
        ticket = secrets.token_urlsafe()
        self._tickets.add(ticket)
        return ticket

    async def serve(self, socket: WebSocket) -> None:
        """One connection, from its ticket to its end."""
        ticket = socket.query_params.get("ticket", "")
        if ticket not in self._tickets:
            await socket.close()
            return
        self._tickets.discard(ticket)
        await socket.accept()
        connection = Connection(socket)
        if len(self._open) >= CONNECTIONS:
            await connection.send(_disconnect("too_many_websockets"))
            await socket.close()
            return
        await self._keep(connection)

    async def _keep(self, connection: Connection) -> None:
        self._open.append(connection)
        await connection.send(self._hello())
        self._on_change()
        try:
            while True:
                self._received(await connection.socket.receive_text())
        except WebSocketDisconnect:
            connection.close()
        finally:
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        if connection in self._open:
            self._open.remove(connection)
            self._on_change()

    def _hello(self) -> Payload:
        debug = {"host": "localhost", "build_number": 1, "approximate_connection_time": 18060}
        return {
            "type": "hello",
            "num_connections": len(self._open),
            "debug_info": debug,
            "connection_info": {"app_id": self._app},
        }

    def _received(self, frame: str) -> None:
        """Anything but an acknowledgement of a waiting envelope means nothing."""
        try:
            said = json.loads(frame)
        except ValueError:
            return
        answer = self._waiting.get(str(said.get("envelope_id"))) if isinstance(said, dict) else None
        if answer is not None and not answer.done():
            payload = said.get("payload")
            answer.set_result(payload if isinstance(payload, dict) else {})

    async def deliver(self, kind: str, payload: Payload) -> Payload | None:
        """What the app acknowledged with; None when nobody is connected or nobody did in time."""
        envelope: Payload = {
            "envelope_id": str(uuid4()),
            "type": kind,
            "payload": payload,
            "accepts_response_payload": True,
        }
        answer = self._waiting[str(envelope["envelope_id"])] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ACK_WITHIN):
                return await self._hand_over(envelope, answer)
        except TimeoutError:
            return None
        finally:
            del self._waiting[str(envelope["envelope_id"])]

    async def _hand_over(self, envelope: Payload, answer: asyncio.Future[Payload]) -> Payload | None:
        """To one connection after the other, the next one only when the one before is gone without an ack."""
        while self._open:
            connection = self._open[0]
            self._open.rotate(-1)
            await connection.send(envelope)
            either: list[asyncio.Future[Any]] = [answer, connection.gone]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            self._forget(connection)
        return None

    async def disconnect(self, reason: str) -> None:
        """Asks the app to connect anew, as Slack does now and then. Old connections get no envelope any more; it is for
        the app to close them."""
        for connection in list(self._open):
            self._forget(connection)
            await connection.send(_disconnect(reason))


def _disconnect(reason: str) -> Payload:
    return {"type": "disconnect", "reason": reason, "debug_info": {"host": "localhost"}}
