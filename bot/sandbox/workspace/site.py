"""The `slack:` part of a site file for the local workspace."""

from __future__ import annotations

import getpass

from bot.config import SlackRoles, SlackSite
from bot.sandbox.workspace.server import Server
from bot.sandbox.workspace.state import ADMIN, CHANNEL, ON_CALL, PEOPLE


def slack_site(server: Server) -> SlackSite:
    """Everybody has the role that the page shows; whoever started the bot is its admin on the command line."""
    having = {role: tuple(p.id for p in PEOPLE if p.role == role) for role in ("admin", "operator", "viewer")}
    return SlackSite(
        channel=CHANNEL,
        on_call=ON_CALL,
        secondary=ADMIN,
        roles=SlackRoles.model_validate(having),
        users={getpass.getuser(): ADMIN},
        api_url=server.api_url,
    )
