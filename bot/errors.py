"""Every error a user can meet, in one tree.

XidbotError
├── UsageError            what was typed cannot be understood
├── ConfigError           the site file, with file and line
├── Denied                the person may not do this
├── SourceError           something outside could not be read (retryable)
│   ├── Unreachable       no answer in time
│   │   ├── NoAnswer      it was asked, and may have acted on it
│   │   └── RateLimited   it said: not now
│   ├── AuthFailed        an answer that says: not with these credentials
│   └── BadReply          an answer that cannot be understood
│       └── Rejected      an answer that says: not this, with a code
├── StoreError            the database
│   └── LeaseHeld         another bot writes to it
└── GateError             the gate could not be run at all
"""

from __future__ import annotations


class XidbotError(Exception):
    """Root. `remedy` says what to do next and is shown to people."""

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class UsageError(XidbotError):
    """What was typed cannot be understood."""

    exit_code = 2


class ConfigError(XidbotError):
    """The site file or a shipped file is wrong; the message names file and line."""

    exit_code = 2


class Denied(XidbotError):
    """The person may not do this."""


class SourceError(XidbotError):
    """Something outside could not be read. `source` names it (prometheus, slurm, slack, …)."""

    exit_code = 3

    def __init__(self, source: str, message: str, remedy: str = "") -> None:
        super().__init__(f"{source}: {message}", remedy)
        self.source = source


class Unreachable(SourceError):
    """No answer, or none in time. maybe_done: what was asked for may have happened all the same."""

    maybe_done = False


class NoAnswer(Unreachable):
    """The request went out and no usable answer came: look before asking again."""

    maybe_done = True


class RateLimited(Unreachable):
    """Nothing was done. `retry_after`: seconds until it may be asked again."""

    def __init__(self, source: str, message: str, retry_after: float) -> None:
        super().__init__(source, message)
        self.retry_after = retry_after


class AuthFailed(SourceError):
    """The source answered, but not to us."""


class BadReply(SourceError):
    """The source answered something that cannot be understood."""


class Rejected(BadReply):
    """The source understood and refused. `code` is its own word for why (`channel_not_found`)."""

    def __init__(self, source: str, message: str, code: str, remedy: str = "") -> None:
        super().__init__(source, message, remedy)
        self.code = code


class StoreError(XidbotError):
    """The database cannot be used as it is."""


class LeaseHeld(StoreError):
    """Another process holds the lease: one bot writes to a database."""

    exit_code = 3


class GateError(XidbotError):
    """The gate could not be run at all (it never saw the request)."""

    exit_code = 3
