"""Files in a thread. The app needs the scope files:write; looking them up needs channels:history as messages do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slack_sdk import WebClient

from bot.slack.client import slack_errors

PAGE = 200  # replies; a thread that carries files is our own and short


class SlackFiles:
    """bot.digest_post.Files."""

    def __init__(self, client: WebClient) -> None:
        self._client = client

    def upload(self, channel: str, thread: str, files: Sequence[tuple[str, str, bytes]]) -> None:
        """(name, title, content) each, shown together. Nobody sees anything before the last of the calls, but its
        outcome may be unknown: look with `find` before doing it again."""
        uploads = [{"filename": name, "title": title, "alt_txt": title, "file": body} for name, title, body in files]
        with slack_errors("files.completeUploadExternal"):
            self._client.files_upload_v2(channel=channel, thread_ts=thread or None, file_uploads=uploads)

    def find(self, channel: str, thread: str, names: Sequence[str]) -> bool:
        """Whether the thread shows files of all these names."""
        with slack_errors("conversations.replies"):
            answer = self._client.conversations_replies(channel=channel, ts=thread, limit=PAGE)
            replies: list[dict[str, Any]] = list(answer["messages"])
            shown = {file.get("name") for reply in replies for file in reply.get("files") or []}
        return shown >= set(names)
