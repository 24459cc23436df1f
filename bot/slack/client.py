"""Tokens, the Web API client, and what it raises, in our words.

Nothing here retries: the SDK's own retry after a dropped connection would post twice.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from socket import gaierror
from typing import Any
from urllib.error import URLError

import websocket
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError

from bot.errors import AuthFailed, BadReply, ConfigError, NoAnswer, RateLimited, Rejected, SourceError, Unreachable

TIMEOUT = 10  # s for a call, or for one read of it

BAD_TOKEN = frozenset(
    {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "not_allowed_token_type"}
)
MAYBE_DONE = frozenset({"internal_error", "fatal_error", "service_unavailable"})
REMEDIES = {
    "channel_not_found": "slack.channel takes the channel's id (C…), not its name; invite the bot if it is private",
    "not_in_channel": "type /invite @xidbot in that channel",
    "is_archived": "unarchive the channel or name another one in slack.channel",
    "missing_scope": "add the scope to the app and install it again; docs/slack-manifest.yaml lists all of them",
    "restricted_action": "the workspace's settings keep apps from posting there; ask its owner",
    "invalid_auth": "are SLACK_BOT_TOKEN (xoxb-…) and SLACK_APP_TOKEN (xapp-…) those of this app?",
}


@dataclass(frozen=True, slots=True)
class Tokens:
    """bot: `xoxb-…`, acts. app: `xapp-…` with connections:write, opens the socket.

    Raises ConfigError for an empty token and for one that cannot be what it should be.
    """

    bot: str = field(repr=False)
    app: str = field(repr=False)

    def __post_init__(self) -> None:
        for name, token, prefix in (("SLACK_BOT_TOKEN", self.bot, "xoxb-"), ("SLACK_APP_TOKEN", self.app, "xapp-")):
            if not token.strip():
                raise ConfigError(f"{name} is empty", "set it, or unset both tokens for the local workspace")
            if not token.startswith(prefix) or token != token.strip():
                raise ConfigError(f"{name} does not look like one", f"it begins with {prefix}")


def web_client(token: str, base_url: str = "", timeout: int = TIMEOUT) -> WebClient:
    """No retries, and no log of its own: what goes wrong is raised."""
    silent = sdk_logger("sdk")
    silent.setLevel(logging.CRITICAL)
    return WebClient(
        token or None,
        base_url=base_url or WebClient.BASE_URL,
        timeout=timeout,
        retry_handlers=[],
        logger=silent,
    )


@contextmanager
def slack_errors(method: str) -> Iterator[None]:
    """What the SDK raises, in our words."""
    try:
        yield
    except SlackApiError as error:
        raise _refusal(method, error) from error
    except URLError as error:
        never_sent = isinstance(error.reason, ConnectionRefusedError | gaierror)
        raise (Unreachable if never_sent else NoAnswer)("slack", f"{method}: {error.reason}") from error
    except (OSError, HTTPException, websocket.WebSocketException) as error:
        raise NoAnswer("slack", f"{method}: {error or type(error).__name__}") from error
    except (SlackClientError, ValueError, TypeError, AttributeError) as error:
        raise BadReply("slack", f"{method}: an answer that is not Slack's ({error})") from error


def _refusal(method: str, error: SlackApiError) -> SourceError:
    response = error.response
    data = response.data if isinstance(response.data, dict) else {}
    code = str(data.get("error", ""))
    if response.status_code == 429 or code in ("ratelimited", "rate_limited"):
        wait = retry_after(response.headers)
        return RateLimited("slack", f"{method}: asks to wait {wait:g} s", wait)
    if response.status_code >= 500 or code in MAYBE_DONE:
        return NoAnswer("slack", f"{method}: {code or response.status_code} (status {response.status_code})")
    if not re.fullmatch(r"[a-z_]+", code):
        return BadReply("slack", f"{method}: an answer that is not Slack's (status {response.status_code})")
    needed = f", needs {data['needed']}" if data.get("needed") else ""
    if code in BAD_TOKEN:
        return AuthFailed("slack", f"{method}: {code}", REMEDIES["invalid_auth"])
    return Rejected("slack", f"{method}: {code}{needed}", code, REMEDIES.get(code, ""))


def retry_after(headers: Mapping[str, Any]) -> float:
    value = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    text = str(value[0] if isinstance(value, list) and value else value)
    return float(text) if text.isdecimal() else 30.0


def sdk_logger(name: str) -> logging.Logger:
    """Their debug logs show requests whole, and they look at this level only."""
    logger = logging.getLogger(f"bot.slack.{name}")
    logger.setLevel(logging.WARNING)
    return logger
