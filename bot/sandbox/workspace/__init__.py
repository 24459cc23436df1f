"""Our own small Slack on loopback: someone with only Python sees and uses the bot in a browser.

server = serve(Workspace())
print(server.url)                     # the page
bot: Tokens(server.bot_token, server.app_token), base_url=server.api_url, channel=CHANNEL
server.type(OPERATOR, "/xid help")    # what a test does instead of a person
server.stop()
"""

from bot.sandbox.workspace.errors import Refused
from bot.sandbox.workspace.memory import remembered
from bot.sandbox.workspace.server import Server, serve
from bot.sandbox.workspace.site import slack_site
from bot.sandbox.workspace.state import (
    ADMIN,
    BOT,
    CHANNEL,
    ON_CALL,
    OPERATOR,
    PEOPLE,
    VIEWER,
    Message,
    Person,
    Workspace,
)

__all__ = [
    "ADMIN", "BOT", "CHANNEL", "ON_CALL", "OPERATOR", "PEOPLE", "VIEWER", "Message", "Person", "Refused", "Server",
    "Workspace", "remembered", "serve", "slack_site",
]  # fmt: skip
