"""The gate as a program: `sudo -n xidbot-gate VERB … --key K`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from bot.errors import GateError
from bot.model import Argv, Report
from bot.schedulers.process import Finished, run

EXITS = (0, 3, 4, 5, 6)
UNCLEAR = 6
NEVER_RAN = (126, 127)  # what sudo, env and shells say when the program is missing or not executable
REMEDY = "check scheduler.gate in the site file and the sudo rule; `xidbot doctor` shows both"


class GateProcess:
    """Runs `command` with the verb, its operands and the key appended. deadline: wall-clock seconds."""

    def __init__(self, command: Sequence[str], deadline: float = 30) -> None:
        self._command = tuple(command)
        self._deadline = deadline

    def run(self, argv: Argv, key: str) -> Report:
        """What the gate said. When it cannot be told whether it acted: an unclear report. Raises GateError only when
        it was never started."""
        words = (*self._command, argv.verb, *argv.operands, "--key", key)
        try:
            done = run(words, self._deadline)
        except (OSError, ValueError) as error:
            raise GateError(f"the gate could not be started: {error}", REMEDY) from error
        return self._report(done)

    def _report(self, done: Finished) -> Report:
        if done.code is None:
            return _unclear(f"the gate did not answer within {self._deadline:g} s", done)
        if not done.out.strip() and _never_ran(done):
            raise GateError(f"the gate was not run: {_first_line(done.err)}", REMEDY)
        body = _object(done.out)
        if body is None or done.code not in EXITS:
            return _unclear(f"the gate ended with {done.code} and no report", done)
        return Report(done.code, body)


def _never_ran(done: Finished) -> bool:
    """sudo warns with the same prefix when all is well, so a gate that crashed must not look like one."""
    refused = re.search(r"(?m)^(?:sudo:|Sorry, user )", done.err) and "Traceback" not in done.err
    return done.code in NEVER_RAN or (done.code == 1 and bool(refused))


def _unclear(reason: str, done: Finished) -> Report:
    said = _first_line(done.err)
    return Report(UNCLEAR, {"reason": f"{reason}: {said}" if said else reason})


def _object(text: str) -> dict[str, object] | None:
    try:
        body = json.loads(text)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _first_line(text: str) -> str:
    return next((line.strip()[:200] for line in text.splitlines() if line.strip()), "")
