"""The page: the workspace as one person sees it, and what that person does there.

Its address holds a secret, because whoever knows it may act as anybody: other accounts of the machine and other sites
that are open in the browser cannot guess it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bot.sandbox.workspace import render
from bot.sandbox.workspace.errors import Refused
from bot.sandbox.workspace.files import File
from bot.sandbox.workspace.interactions import Interactions
from bot.sandbox.workspace.sockets import Sockets
from bot.sandbox.workspace.state import BOT, SLACKBOT, Message, Person, Workspace
from commands import COMMANDS

HERE = Path(__file__).parent
STATIC = {"icon.svg": "image/svg+xml", "page.css": "text/css", "page.js": "text/javascript"}
KEEP_ALIVE = 15.0  # s without a change after which the stream says that it lives
LATEST = 300  # messages of the channel that the page begins with
TOGETHER = 300.0  # s within which one person's replies are shown as one
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A message as the template needs it. day: the heading above it. follows: goes on where the one before ended."""

    message: Message
    author: str
    kind: str
    body: Markup
    sent: datetime
    files: tuple[File, ...]
    replies: tuple[Message, ...] = ()
    day: str = ""
    follows: bool = False

    @property
    def tint(self) -> int:
        """The colour of the author's picture."""
        return ord(self.author[0]) % 5


class View:
    """What one person sees."""

    def __init__(self, workspace: Workspace, person: Person) -> None:
        self._workspace = workspace
        self.person = person
        self._names = workspace.names()
        self._reader = render.Reader(self._names, workspace.mine(person.id), workspace.tz, workspace.clock())

    def channel(self) -> list[Shown]:
        return self._shown(self._workspace.channel(self.person.id)[-LATEST:])

    def thread(self, ts: str) -> list[Shown]:
        """The message and its replies. Raises Refused."""
        return self._shown(self._thread(ts))

    def one(self, message: Message) -> Shown:
        """The same as where it stands among the others. Raises Refused."""
        among = self._thread(message.thread) if message.thread else self._workspace.channel(self.person.id)
        now = self._workspace.message(message.ts)
        before = [other for other in among if other.at < now.at]
        return self._one(now, before[-1] if before else None)

    def marked(self, text: str) -> Markup:
        return render.mrkdwn(text, self._reader)

    def _thread(self, ts: str) -> list[Message]:
        return [self._workspace.message(ts), *self._workspace.replies(ts, self.person.id)]

    def _shown(self, messages: list[Message]) -> list[Shown]:
        before: list[Message | None] = [None, *messages]
        return [self._one(message, earlier) for earlier, message in zip(before, messages, strict=False)]

    def _one(self, message: Message, before: Message | None) -> Shown:
        sent = self._reader.local(message.at)
        new_day = before is None or self._reader.local(before.at).date() != sent.date()
        files = self._workspace.files
        return Shown(
            message=message,
            author=self._names.get(message.user, message.user),
            kind={BOT: "bot", SLACKBOT: "slackbot"}.get(message.user, "person"),
            body=self._body(message),
            sent=sent,
            files=tuple(files.get(file) for file in message.files),
            replies=tuple(self._workspace.replies(message.ts, self.person.id)),
            day=f"{sent:%A} {sent.day} {sent:%B}" if new_day else "",
            follows=not new_day and before is not None and _goes_on(before, message),
        )

    def _body(self, message: Message) -> Markup:
        """The text is for notifications where there are blocks."""
        if message.blocks:
            return render.blocks(message.blocks, self._reader)
        return Markup('<div class="text">{}</div>').format(self.marked(message.text))


def _goes_on(before: Message, message: Message) -> bool:
    """In threads only: a channel's messages stand for themselves."""
    same = (before.user, before.to, before.thread) == (message.user, message.to, message.thread)
    return same and bool(message.thread) and message.at - before.at < TOGETHER


class Page:
    """Its routes. closing: set when the server stops, so that streams end."""

    def __init__(self, workspace: Workspace, sockets: Sockets, interactions: Interactions) -> None:
        self._workspace = workspace
        self._sockets = sockets
        self._interactions = interactions
        self.closing = False

    def routes(self) -> list[Route]:
        return [
            Route("/", self._page),
            Route("/thread", self._thread),
            Route("/events", self._events),
            Route("/files/{file}", self._file),
            Route("/type", self._doing(self._type), methods=["POST"]),
            Route("/click", self._doing(self._click), methods=["POST"]),
            Route("/dismiss", self._doing(self._dismiss), methods=["POST"]),
            *(Route(f"/{name}", _static(name, kind)) for name, kind in STATIC.items()),
        ]

    # -- looking -------------------------------------------------------------------------------------------------

    async def _page(self, request: Request) -> Response:
        view = self._view(request)
        version, thread = self._workspace.version, request.query_params.get("thread", "")
        text = (
            _templates()
            .get_template("page.html.j2")
            .render(
                view=view,
                workspace=self._workspace,
                version=version,
                connected=bool(self._sockets.connected),
                thread=self._thread_shown(view, thread),
                commands=COMMANDS,
            )
        )
        return HTMLResponse(text, headers=HEADERS)

    def _view(self, request: Request) -> View:
        """As the one that `as` names, else as the first."""
        people = {person.id: person for person in self._workspace.people}
        wanted = request.query_params.get("as", "")
        return View(self._workspace, people.get(wanted) or self._workspace.people[0])

    @staticmethod
    def _thread_shown(view: View, ts: str) -> list[Shown]:
        try:
            return view.thread(ts) if ts else []
        except Refused:
            return []

    async def _thread(self, request: Request) -> Response:
        shown = self._thread_shown(self._view(request), request.query_params.get("ts", ""))
        text = _templates().get_template("thread.html.j2").render(thread=shown)
        return HTMLResponse(text, 200 if shown else 404, headers=HEADERS)

    async def _file(self, request: Request) -> Response:
        """Pictures are shown; everything else is only handed out, never opened here."""
        try:
            file = self._workspace.files.get(request.path_params["file"])
        except Refused:
            return Response(status_code=404)
        how = {} if file.kind else {"Content-Disposition": "attachment"}
        return Response(file.data, media_type=file.kind or "application/octet-stream", headers={**HEADERS, **how})

    async def _events(self, request: Request) -> Response:
        """Server-sent events; a browser that comes back names the last one that it has seen."""
        since = request.headers.get("last-event-id") or request.query_params.get("after", "")
        stream = self._stream(self._view(request).person, int(since) if since.isdecimal() else 0)
        return StreamingResponse(stream, media_type="text/event-stream", headers=HEADERS)

    async def _stream(self, person: Person, seen: int) -> AsyncIterator[str]:
        changed, loop, status = asyncio.Event(), asyncio.get_running_loop(), ""
        with self._workspace.watched(lambda: loop.call_soon_threadsafe(changed.set)):
            while not self.closing:
                changed.clear()
                if status != (status := self._status()):
                    yield f"event: status\ndata: {status}\n\n"
                for message in self._workspace.changed_since(seen, person.id):
                    seen = message.version
                    yield f"id: {seen}\nevent: message\ndata: {self._event(message, person)}\n\n"
                if not await _set_within(changed, KEEP_ALIVE):
                    yield ": still here\n\n"

    def _status(self) -> str:
        return json.dumps({"connected": bool(self._sockets.connected), "topic": self._workspace.topic})

    def _event(self, message: Message, person: Person) -> str:
        told = {"ts": message.ts, "thread": message.thread, "mine": message.to == person.id}
        return json.dumps({**told, "html": "" if message.deleted else self._html(message, person)})

    def _html(self, message: Message, person: Person) -> str:
        try:
            shown = View(self._workspace, person).one(message)
        except Refused:  # deleted meanwhile, which is a change of its own
            return ""
        return _templates().get_template("message.html.j2").render(shown=shown)

    # -- doing ---------------------------------------------------------------------------------------------------

    def _doing(self, do: Callable[[Mapping[str, str]], Awaitable[bool]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                given = {str(key): str(value) for key, value in dict(await request.json()).items()}
                return JSONResponse({"ok": await do(given)}, headers=HEADERS)
            except (Refused, KeyError, ValueError, TypeError) as error:
                return JSONResponse({"ok": False, "error": str(error)}, 400, headers=HEADERS)

        return endpoint

    async def _type(self, given: Mapping[str, str]) -> bool:
        return await self._interactions.type(given["as"], given["line"])

    async def _click(self, given: Mapping[str, str]) -> bool:
        return await self._interactions.click(given["as"], given["ts"], given["action"])

    async def _dismiss(self, given: Mapping[str, str]) -> bool:
        """Only what nobody else sees."""
        if self._workspace.message(given["ts"]).to != given["as"]:
            raise Refused("message_not_found")
        self._workspace.delete(given["ts"])
        return True


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def _static(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def serve(_request: Request) -> Response:
        return Response((HERE / name).read_bytes(), media_type=kind, headers=HEADERS)

    return serve


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(HERE),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
