"""Writing to Slack, and reading back what stands there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from slack_sdk import WebClient
from slack_sdk.web import SlackResponse
from slack_sdk.webhook import WebhookClient

from bot.errors import BadReply, NoAnswer, RateLimited, SourceError
from bot.model import SourceState
from bot.ports import Posted
from bot.slack.client import REMEDIES, TIMEOUT, retry_after, slack_errors

Block = dict[str, object]
SKEW = 600  # s that our clock and Slack's may differ when a message is looked up
PAGES = 50  # of 200 messages
SCOPES = ("chat:write", "commands", "channels:read", "channels:history", "groups:read", "groups:history",
          "usergroups:read", "files:write")  # fmt: skip


class SlackChat:
    """bot.ports.Chat. A call may take `TIMEOUT` seconds a read."""

    def __init__(self, client: WebClient) -> None:
        self._client = client
        self._me: tuple[str, str] | None = None

    def post(self, channel: str, text: str, blocks: Sequence[Block], thread: str = "") -> Posted:
        with slack_errors("chat.postMessage"):
            answer = self._client.chat_postMessage(
                channel=channel,
                text=text,
                blocks=list(blocks) or None,
                thread_ts=thread or None,
                unfurl_links=False,
                unfurl_media=False,
            )
            return Posted(_word(answer, "channel"), _word(answer, "ts"))

    def update(self, at: Posted, text: str, blocks: Sequence[Block]) -> None:
        """An empty list takes the old blocks away."""
        with slack_errors("chat.update"):
            self._client.chat_update(channel=at.channel, ts=at.ts, text=text, blocks=list(blocks))

    def find(self, channel: str, block_id: str, since: int, thread: str = "") -> Posted | None:
        for message in self._messages(channel, since, thread):
            ids = [block.get("block_id") for block in message.get("blocks") or []]
            if block_id in ids and self._ours(message):
                return Posted(channel, str(message["ts"]))
        return None

    def whisper(self, channel: str, user: str, text: str, thread: str = "", response_url: str = "") -> None:
        if response_url and self._respond(response_url, text, thread):
            return
        with slack_errors("chat.postEphemeral"):
            self._client.chat_postEphemeral(channel=channel, user=user, text=text, thread_ts=thread or None)

    def check(self, channel: str) -> tuple[SourceState, ...]:
        """For doctor: the token, its scopes where Slack tells them, the channel. Never raises."""
        token = self._problem(self._check_token)
        if token:
            return (SourceState("slack token", token),)
        return (
            SourceState("slack token"),
            SourceState("slack scopes", self._problem(self._check_scopes)),
            SourceState("slack channel", self._problem(lambda: self._check_channel(channel))),
        )

    def _messages(self, channel: str, since: int, thread: str) -> Iterator[dict[str, Any]]:
        method = "conversations.replies" if thread else "conversations.history"
        cursor = ""
        for _ in range(PAGES):
            arguments: dict[str, Any] = {"channel": channel, "oldest": str(since - SKEW), "limit": 200}
            if thread:
                arguments["ts"] = thread
            if cursor:
                arguments["cursor"] = cursor
            with slack_errors(method):
                page = self._client.api_call(method, params=arguments)
                messages = list(page["messages"])
                cursor = str((page.get("response_metadata") or {}).get("next_cursor") or "")
            yield from messages
            if not cursor:
                return
        raise BadReply("slack", f"{method}: more than {PAGES} pages")

    def _ours(self, message: Mapping[str, Any]) -> bool:
        """Another site's bot in the same channel numbers its incidents too."""
        if self._me is None:
            with slack_errors("auth.test"):
                me = self._client.auth_test()
                self._me = str(me.get("user_id")), str(me.get("bot_id"))
        return message.get("user") == self._me[0] or message.get("bot_id") == self._me[1]

    def _respond(self, url: str, text: str, thread: str) -> bool:
        """False when Slack does not take it there (any more): five answers in 30 min."""
        webhook = WebhookClient(url, timeout=TIMEOUT, retry_handlers=[], logger=self._client.logger)
        body = {"text": text, "response_type": "ephemeral", "replace_original": False}
        with slack_errors("response_url"):
            answer = webhook.send_dict({**body, "thread_ts": thread} if thread else body)
        if answer.status_code == 429:
            raise RateLimited("slack", "response_url: asks to wait", retry_after(answer.headers))
        return bool(answer.status_code == 200)

    @staticmethod
    def _problem(check: Callable[[], str]) -> str:
        try:
            return check()
        except SourceError as error:
            return str(error)

    def _check_token(self) -> str:
        with slack_errors("auth.test"):
            self._client.auth_test()
        return ""

    def _check_scopes(self) -> str:
        with slack_errors("auth.test"):
            headers = self._client.auth_test().headers
        told = next((value for name, value in headers.items() if name.lower() == "x-oauth-scopes"), "")
        have = {scope.strip() for scope in str(told).split(",") if scope.strip()}
        missing = [scope for scope in SCOPES if scope not in have] if have else []
        return f"missing: {', '.join(missing)} ({REMEDIES['missing_scope']})" if missing else ""

    def _check_channel(self, channel: str) -> str:
        with slack_errors("conversations.info"):
            found = self._client.conversations_info(channel=channel)["channel"]
        if found.get("is_archived"):
            return f"{channel} is archived ({REMEDIES['is_archived']})"
        return "" if found.get("is_member") else f"the bot is not in {channel} ({REMEDIES['not_in_channel']})"


def _word(answer: SlackResponse, name: str) -> str:
    value = answer.get(name)
    if not isinstance(value, str) or not value:
        raise NoAnswer("slack", f"an answer without {name}")
    return value
