"""How Slack says no."""

from collections.abc import Sequence


class Refused(Exception):
    """code: Slack's word for why. messages: what exactly."""

    def __init__(self, code: str, messages: Sequence[str] = ()) -> None:
        super().__init__(": ".join((code, *messages)))
        self.code = code
        self.messages = tuple(messages)
