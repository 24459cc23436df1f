"""Who may do what, by Slack user and user group."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping

from slack_sdk import WebClient

from bot.errors import SourceError
from bot.model import ROLES, Role
from bot.slack.client import slack_errors

log = logging.getLogger(__name__)

GROUP_TTL = 60  # s for which the members of a user group are believed
GROUP_RETRY = 10  # s before a group that could not be read is asked for again


class SlackRoles:
    """bot.ports.Roles. A role's list holds user ids (U…, W…) and user groups (S…); "*" is everyone, empty nobody.

    users: account name → Slack user id, for what is typed on the command line (`os:alice`).
    """

    def __init__(
        self,
        client: WebClient,
        roles: Mapping[str, Collection[str] | str],
        users: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._roles = {role: _entries(roles.get(role, ())) for role in ROLES}
        self._users = dict(users)
        self._clock = clock
        self._groups: dict[str, tuple[float, frozenset[str]]] = {}
        self._lock = threading.Lock()

    def of(self, user: str) -> Role | None:
        """The highest role; None = nobody we know."""
        slack_user = self._users.get(user[3:], "") if user.startswith("os:") else user
        for role in reversed(ROLES):
            if user and self._has(role, slack_user):
                return role
        return None

    def _has(self, role: Role, user: str) -> bool:
        entries = self._roles[role]
        if "*" in entries:
            return True
        if not user.startswith(("U", "W")):
            return False
        groups = (entry for entry in entries if entry.startswith("S"))
        return user in entries or any(user in self._members(group) for group in groups)

    def _members(self, group: str) -> frozenset[str]:
        """Nobody, when Slack does not tell: a role is never given on a guess or an old list."""
        with self._lock:
            until, members = self._groups.get(group, (0.0, frozenset[str]()))
            if group not in self._groups or self._clock() >= until:
                ttl, members = self._read(group)
                self._groups[group] = (self._clock() + ttl, members)
            return members

    def _read(self, group: str) -> tuple[float, frozenset[str]]:
        try:
            with slack_errors("usergroups.users.list"):
                answer = self._client.usergroups_users_list(usergroup=group)
                return GROUP_TTL, frozenset(str(user) for user in answer["users"])
        except SourceError as error:
            log.warning("nobody of %s has a role from it now: %s", group, error)
            return GROUP_RETRY, frozenset()


def _entries(value: Collection[str] | str) -> frozenset[str]:
    return frozenset([value] if isinstance(value, str) else value)
