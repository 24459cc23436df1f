"""The Web API: the methods that the bot calls, with Slack's own words for what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse

from bot.sandbox.workspace.content import EDIT_LIMIT, TRUNCATED_AT, checked, objects
from bot.sandbox.workspace.errors import Refused
from bot.sandbox.workspace.messages import file_json, message_json
from bot.sandbox.workspace.sockets import Sockets
from bot.sandbox.workspace.state import APP, BOT, BOT_ID, CHANNEL, TEAM, Message, Person, Workspace

SCOPES = (
    "channels:history,channels:read,chat:write,commands,files:write,groups:history,groups:read,"
    "usergroups:read,users:read"
)
PAGE = 100  # messages that one answer holds unless asked for others
PAGE_MAX = 999

Answer = dict[str, object]


@dataclass(frozen=True, slots=True)
class Call:
    """One call. given: its arguments from query, form and JSON together. base: where this server is reached."""

    workspace: Workspace
    sockets: Sockets
    base: str
    given: Mapping[str, object]

    def text(self, name: str) -> str:
        value = self.given.get(name)
        return "" if value is None else str(value)

    def truth(self, name: str) -> bool:
        return self.text(name).lower() in ("1", "true")

    def whole(self, name: str, otherwise: int) -> int:
        return int(self.text(name)) if self.text(name).isdecimal() else otherwise


class Api:
    """tokens: what may call (bot) and what may open sockets (app)."""

    def __init__(self, workspace: Workspace, sockets: Sockets, base: str, bot_token: str, app_token: str) -> None:
        self._call = Call(workspace, sockets, base, {})
        self._tokens = {bot_token: "bot", app_token: "app"}

    async def answer(self, request: Request) -> JSONResponse:
        method = request.path_params["method"]
        given = await arguments(request)
        try:
            return JSONResponse({"ok": True, **self._answer(method, request, given)}, headers=self._headers(method))
        except Refused as error:
            return JSONResponse(refusal(error))

    def _answer(self, method: str, request: Request, given: Mapping[str, object]) -> Answer:
        if method not in METHODS:
            raise Refused("unknown_method")
        if method != "api.test":
            self._authorize(method, request, given)
        return METHODS[method](replace(self._call, given=given))

    def _authorize(self, method: str, request: Request, given: Mapping[str, object]) -> None:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        token = bearer or str(given.get("token") or "")
        if not token:
            raise Refused("not_authed")
        if token not in self._tokens:
            raise Refused("invalid_auth")
        if self._tokens[token] != ("app" if method.startswith("apps.") else "bot"):
            raise Refused("not_allowed_token_type")

    @staticmethod
    def _headers(method: str) -> dict[str, str]:
        return {} if method == "api.test" else {"x-oauth-scopes": SCOPES}


async def arguments(request: Request) -> dict[str, object]:
    """Query, form and JSON together; what stands in the body wins."""
    body = await request.body()
    if "json" in request.headers.get("content-type", ""):
        return {**request.query_params, **_object(body)}
    return {**request.query_params, **dict(parse_qsl(body.decode(errors="replace")))}


def _object(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def refusal(error: Refused) -> Answer:
    answer: Answer = {"ok": False, "error": error.code}
    if error.messages:
        answer["response_metadata"] = {"messages": [f"[ERROR] {message}" for message in error.messages]}
    return answer


# -- methods -----------------------------------------------------------------------------------------------------------


def api_test(call: Call) -> Answer:
    if call.text("error"):
        raise Refused(call.text("error"))
    return {"args": dict(call.given)}


def auth_test(call: Call) -> Answer:
    workspace = call.workspace
    return {"url": f"{call.base}/", "team": workspace.name, "user": "xidbot", "team_id": TEAM, "user_id": BOT,
            "bot_id": BOT_ID, "app_id": APP, "is_enterprise_install": False}  # fmt: skip


def open_connection(call: Call) -> Answer:
    where = call.base.replace("http", "ws", 1)
    return {"url": f"{where}/link/?ticket={call.sockets.ticket()}&app_id={APP}"}


def post_message(call: Call) -> Answer:
    _channel(call)
    text, blocks = checked(call.given)
    message = call.workspace.post(BOT, text, blocks or (), thread=call.text("thread_ts"))
    warned = {"warning": "message_truncated"} if len(call.text("text")) > TRUNCATED_AT else {}
    return {"channel": CHANNEL, "ts": message.ts, "message": message_json(message, call.workspace), **warned}


def update_message(call: Call) -> Answer:
    """Blocks that are not given stay; an empty list takes them away."""
    _channel(call)
    old = call.workspace.message(call.text("ts"))
    if old.to:
        raise Refused("message_not_found")
    if old.user != BOT:
        raise Refused("cant_update_message")
    text, blocks = checked(call.given, EDIT_LIMIT)
    message = call.workspace.edit(old.ts, text, old.blocks if blocks is None else blocks)
    return {"channel": CHANNEL, "ts": message.ts, "text": text, "message": message_json(message, call.workspace)}


def post_ephemeral(call: Call) -> Answer:
    _channel(call)
    user = call.text("user")
    if user not in {person.id for person in call.workspace.people}:
        raise Refused("user_not_in_channel")
    text, blocks = checked(call.given)
    message = call.workspace.post(BOT, text, blocks or (), to=user, thread=call.text("thread_ts"))
    return {"message_ts": message.ts}


def history(call: Call) -> Answer:
    """Newest first."""
    _channel(call)
    found = [message for message in reversed(call.workspace.channel()) if _within(message, call)]
    return _page(call, found)


def replies(call: Call) -> Answer:
    """The message itself comes first, whatever the times asked for."""
    _channel(call)
    ts = call.text("ts")
    if not ts or not any(message.ts == ts for message in call.workspace.channel()):
        raise Refused("thread_not_found")
    under = [message for message in call.workspace.replies(ts) if _within(message, call)]
    return _page(call, [call.workspace.message(ts), *under])


def conversation(call: Call) -> Answer:
    _channel(call)
    workspace = call.workspace
    topic = {"value": workspace.topic, "creator": "", "last_set": 0}
    return {"channel": {"id": CHANNEL, "name": workspace.channel_name, "is_channel": True, "is_private": False,
                        "is_archived": False, "is_member": True, "topic": topic}}  # fmt: skip


def users(call: Call) -> Answer:
    return {"members": [_user(person) for person in call.workspace.people], "response_metadata": {"next_cursor": ""}}


def user(call: Call) -> Answer:
    return {"user": _user(call.workspace.person(call.text("user")))}


def groups(call: Call) -> Answer:
    found = [
        {"id": group, "team_id": TEAM, "name": name, "handle": name, "user_count": len(members)}
        for group, (name, members) in call.workspace.groups.items()
    ]
    return {"usergroups": found}


def group_users(call: Call) -> Answer:
    group = call.workspace.groups.get(call.text("usergroup"))
    if group is None:
        raise Refused("no_such_subteam")
    return {"users": list(group[1])}


def expect_upload(call: Call) -> Answer:
    if not call.text("filename") or not call.whole("length", 0):
        raise Refused("invalid_arguments")
    file = call.workspace.files.expect(call.text("filename"))
    return {"upload_url": f"{call.base}/upload/{file.secret}", "file_id": file.id}


def complete_upload(call: Call) -> Answer:
    """Shares the files in one message where a channel is named."""
    if call.text("channel_id"):
        _channel(call, "channel_id")
    listed = objects(call.given, "files", "invalid_arguments")
    if not listed:
        raise Refused("invalid_arguments")
    files = [call.workspace.files.entitle(str(row.get("id")), str(row.get("title") or "")) for row in listed]
    if call.text("channel_id"):
        comment, thread = call.text("initial_comment"), call.text("thread_ts")
        call.workspace.post(BOT, comment, thread=thread, files=[file.id for file in files])
    return {"files": [file_json(file) for file in files]}


METHODS: Mapping[str, Callable[[Call], Answer]] = {
    "api.test": api_test,
    "apps.connections.open": open_connection,
    "auth.test": auth_test,
    "chat.postEphemeral": post_ephemeral,
    "chat.postMessage": post_message,
    "chat.update": update_message,
    "conversations.history": history,
    "conversations.info": conversation,
    "conversations.replies": replies,
    "files.completeUploadExternal": complete_upload,
    "files.getUploadURLExternal": expect_upload,
    "usergroups.list": groups,
    "usergroups.users.list": group_users,
    "users.info": user,
    "users.list": users,
}


# -- what they share ---------------------------------------------------------------------------------------------------


def _channel(call: Call, name: str = "channel") -> None:
    if call.text(name) != CHANNEL:
        raise Refused("channel_not_found")


def _within(message: Message, call: Call) -> bool:
    """Between `oldest` and `latest`, their own moments only when `inclusive`."""
    oldest, latest = _moment(call.text("oldest"), 0.0), _moment(call.text("latest"), float("inf"))
    inside = oldest < message.at < latest
    return inside or (call.truth("inclusive") and message.at in (oldest, latest))


def _moment(text: str, otherwise: float) -> float:
    try:
        return float(text) if text else otherwise
    except ValueError as error:
        raise Refused("invalid_arguments") from error


def _page(call: Call, found: Sequence[Message]) -> Answer:
    """cursor: the ts of the last message that the page before held, so that new ones shift nothing."""
    times, cursor = [message.ts for message in found], call.text("cursor")
    if cursor and cursor not in times:
        raise Refused("invalid_cursor")
    begin = times.index(cursor) + 1 if cursor else 0
    end = begin + (min(PAGE_MAX, call.whole("limit", PAGE)) or PAGE)
    more = len(found) > end
    return {
        "messages": [message_json(message, call.workspace) for message in found[begin:end]],
        "has_more": more,
        "response_metadata": {"next_cursor": times[end - 1] if more else ""},
    }


def _user(person: Person) -> Answer:
    return {"id": person.id, "team_id": TEAM, "name": person.name.lower(), "real_name": person.name, "deleted": False,
            "is_bot": False, "is_admin": person.role == "admin"}  # fmt: skip
