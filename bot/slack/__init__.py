"""Slack: the one place that knows its SDK and Bolt. Tokens are never logged, nor are answer addresses."""

from bot.slack.app import SlackApp, build_app
from bot.slack.chat import SlackChat
from bot.slack.client import Tokens, web_client
from bot.slack.listeners import COMMANDS
from bot.slack.roles import SlackRoles

__all__ = ["COMMANDS", "SlackApp", "SlackChat", "SlackRoles", "Tokens", "build_app", "web_client"]
