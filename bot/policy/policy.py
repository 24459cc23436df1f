"""All that decides, as one merged document with a hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from pydantic import Field

from bot.model import Mode
from bot.policy.figures import Numbers
from bot.policy.playbook import Playbook
from bot.policy.session_rule import SessionRule
from bot.policy.signal import Signal
from bot.storage.numbers import StorageNumbers
from bot.storage.numbers import numbers as storage_numbers
from bot.yamlfile import Strict


class Policy(Strict):
    numbers: Numbers
    storage: StorageNumbers = Field(default_factory=storage_numbers)
    signals: Mapping[str, Signal]
    playbooks: tuple[Playbook, ...]
    sessions: tuple[SessionRule, ...] = ()
    write_mode: Mode = "observe"
    gpus: Mapping[str, int] = {}

    @cached_property
    def hash(self) -> str:
        """First 12 hex digits of the SHA-256 of the merged policy; stored with each decision."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Pydantic's, whose copies keep what was computed of the old one."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("hash", None)
        return copied
