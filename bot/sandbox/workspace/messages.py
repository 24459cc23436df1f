"""A message, and a file, as the Web API tells them."""

from __future__ import annotations

from bot.sandbox.workspace.files import File
from bot.sandbox.workspace.state import APP, BOT, BOT_ID, CHANNEL, TEAM, Message, Workspace


def message_json(message: Message, workspace: Workspace) -> dict[str, object]:
    told: dict[str, object] = {"type": "message", "user": message.user, "text": message.text, "ts": message.ts}
    if message.user == BOT:
        told |= {"bot_id": BOT_ID, "app_id": APP, "team": TEAM}
    if message.blocks:
        told["blocks"] = [dict(block) for block in message.blocks]
    if message.files:
        told["files"] = [file_json(workspace.files.get(file)) for file in message.files]
    if message.edited:
        told["edited"] = {"user": message.user, "ts": message.edited}
    return told | _thread(message, workspace)


def _thread(message: Message, workspace: Workspace) -> dict[str, object]:
    if message.thread:
        return {"thread_ts": message.thread, "parent_user_id": workspace.author(message.thread)}
    replies = workspace.replies(message.ts)
    if not replies:
        return {}
    users = list(dict.fromkeys(reply.user for reply in replies))
    return {
        "thread_ts": message.ts,
        "reply_count": len(replies),
        "reply_users": users,
        "reply_users_count": len(users),
        "latest_reply": replies[-1].ts,
    }


def file_json(file: File) -> dict[str, object]:
    return {
        "id": file.id,
        "name": file.name,
        "title": file.title or file.name,
        "size": len(file.data or b""),
        "user": BOT,
        "channels": [CHANNEL],
    }
