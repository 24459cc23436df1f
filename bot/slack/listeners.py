"""What people type and click becomes a Request. Listeners acknowledge and record, nothing else."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from slack_bolt import Ack, App

from bot.errors import UsageError
from bot.model import Request

log = logging.getLogger(__name__)

TEXT_LIMIT = 1_000  # characters of a typed command
COMMANDS = {"/retry": "retry", "/exclude": "exclude", "/xid": ""}  # command → the word it stands for
NOT_RECORDED = "That could not be recorded, so nothing was done. Please try again."


def command_request(body: Mapping[str, Any], word: str, at: int) -> Request:
    """A slash command as a Request. Raises UsageError for a text that is too long."""
    text = clean(str(body.get("text") or ""))
    return Request(
        text=" ".join(part for part in (word, text) if part) or "help",
        user=str(body.get("user_id") or ""),
        at=at,
        source="slack",
        dedupe=f"command:{body.get('trigger_id') or uuid4().hex}",
        channel=str(body.get("channel_id") or ""),
        response_url=str(body.get("response_url") or ""),
    )


def click_request(body: Mapping[str, Any], at: int) -> Request:
    """A click as a Request: `approve 412.1.1`. Its thread is the one that holds the button, if one does: an
    ephemeral answer in a thread that nobody has open would go unseen.

    The same click delivered again (no ack in 3 s) has the same action_ts; a second click has another one.
    """
    action = body["actions"][0]
    container, message = body.get("container") or {}, body.get("message") or {}
    user, action_id, value = str(body["user"]["id"]), str(action["action_id"]), str(action.get("value") or "")
    ts = str(container.get("message_ts") or message.get("ts") or "")
    thread = str(container.get("thread_ts") or message.get("thread_ts") or "")
    channel = container.get("channel_id") or (body.get("channel") or {}).get("id") or ""
    return Request(
        text=clean(f"{action_id.partition(':')[0]} {value}"),
        user=user,
        at=at,
        source="slack",
        dedupe=f"click:{user}:{action.get('action_ts') or uuid4().hex}:{action_id}:{value}",
        channel=str(channel),
        thread=thread if thread != ts else "",  # a message with replies names itself as its thread
        response_url=str(body.get("response_url") or ""),
        facts={"message": ts},
    )


def clean(text: str) -> str:
    """What was typed, on one line and without what cannot be seen; Slack's own escapes undone. Raises UsageError."""
    if len(text) > TEXT_LIMIT:
        raise UsageError(f"{len(text):,} characters; at most {TEXT_LIMIT:,} are read, so nothing was done")
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    shown = (" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
    return " ".join("".join(shown).split())


class Listeners:
    """Acknowledging and recording are apart (`ack=`, `lazy=`): what raises while recording cannot cost the ack."""

    def __init__(self, inbox: Callable[[Request], None], clock: Callable[[], float]) -> None:
        self._inbox = inbox
        self._clock = clock

    def register(self, bolt: App, commands: Mapping[str, str]) -> None:
        for name, word in commands.items():
            self._register_command(bolt, name, word)
        bolt.action(re.compile(".*"))(ack=self._ack_click, lazy=[self._record_click])
        bolt.error(_listener_failed)

    def _register_command(self, bolt: App, name: str, word: str) -> None:
        def acknowledge(ack: Ack, body: dict[str, Any]) -> None:
            try:
                command_request(body, word, 0)
            except UsageError as error:
                ack(text=str(error), response_type="ephemeral")
            else:
                ack()  # silently: the answer itself follows, seen by the person only

        def record(body: dict[str, Any], respond: Callable[..., Any]) -> None:
            try:
                request = command_request(body, word, int(self._clock()))
            except UsageError:
                return
            self._record(request, respond)

        bolt.command(name)(ack=acknowledge, lazy=[record])

    @staticmethod
    def _ack_click(ack: Ack) -> None:
        ack()

    def _record_click(self, body: dict[str, Any], respond: Callable[..., Any]) -> None:
        self._record(click_request(body, int(self._clock())), respond)

    def _record(self, request: Request, respond: Callable[..., Any]) -> None:
        recorded = False
        try:
            self._inbox(request)
            recorded = True
        finally:
            if not recorded:
                log.error("a request of %s could not be recorded", request.user, exc_info=True)
                respond(text=NOT_RECORDED, response_type="ephemeral", replace_original=False)


def _listener_failed(error: Exception) -> None:
    """Bolt's last resort. Without an ack Slack tells the person that it did not work."""
    log.error("a Slack listener failed", exc_info=error)
