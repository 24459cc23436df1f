"""The gate's command line: one verb, one answer."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from bot.errors import ConfigError, SourceError
from bot.gate import settings as gate_settings
from bot.gate.answer import ALREADY, DONE, FAILED, REFUSED, End
from bot.gate.call import Call, must_match
from bot.gate.jobs import requeue
from bot.gate.log import Log, locked
from bot.gate.nodes import hold_node, release_own
from bot.gate.settings import Settings, load_settings
from bot.gate.slurm import Slurm
from bot.gate.status import pause, resume, status

LATER = ("requeue-hold", "release-own-job", "collect", "test", "sweep")
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:#+@/-]{0,199}")
NUMBER = re.compile(r"[0-9]{1,9}")


def main(argv: Sequence[str] | None = None) -> int:
    try:
        exit, body = carry_out(_parsed(sys.argv[1:] if argv is None else list(argv)))
    except End as end:
        exit, body = end.exit, {"reason": end.reason, **end.facts}
    except ConfigError as error:
        exit, body = REFUSED, {"reason": f"gate settings: {error}"}
    except (SourceError, OSError) as error:
        exit, body = FAILED, {"reason": str(error)}
    print(json.dumps({"exit": exit, **body}), flush=True)
    return exit


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise End(REFUSED, f"usage: {message}", verbs=[*VERBS, *LATER])


def _parsed(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="xidbot-gate", add_help=False, allow_abbrev=False)
    parser.add_argument("verb")
    parser.add_argument("target", nargs="?", default="")
    parser.add_argument("--key", default="")
    parser.add_argument("--reason", default="")
    parser.add_argument("--why", default="")
    parser.add_argument("--restart", default="")
    return parser.parse_args(argv)


def carry_out(asked: argparse.Namespace) -> tuple[int, dict[str, object]]:
    """One verb. Verbs without a key (status, pause, resume) never wait for the lock."""
    if asked.verb in LATER:
        raise End(REFUSED, f"{asked.verb} is not there yet")
    if asked.verb not in VERBS:
        raise End(REFUSED, f"no verb {asked.verb[:40]!r}", verbs=[*VERBS, *LATER])
    settings = load_settings(gate_settings.CONFIG)
    if asked.verb not in KEYED:
        return VERBS[asked.verb](_call(asked, settings, None))
    must_match(KEY, asked.key, "--key")
    with locked(settings.log.with_name(f"{settings.log.name}.lock")) as lock:
        return _once(_call(asked, settings, lock))


def _call(asked: argparse.Namespace, settings: Settings, lock: int | None) -> Call:
    by = os.environ.get("SUDO_USER") or str(os.getuid())
    slurm = Slurm(settings, lock)
    if asked.restart:
        must_match(NUMBER, asked.restart, "--restart")
    restart = int(asked.restart) if asked.restart else None
    words = (asked.verb, asked.target, asked.key, asked.reason, asked.why, restart)
    return Call(*words, settings=settings, slurm=slurm, log=Log(settings.log), by=by)


def _once(call: Call) -> tuple[int, dict[str, object]]:
    """The key's own past comes first. What ended as done is never repeated, whatever has happened since."""
    for entry in call.log.of(call.key):
        if (entry.get("verb"), entry.get("target")) != (call.verb, call.target):
            raise End(REFUSED, f"this key stood for {entry.get('verb')} {entry.get('target')}")
        if entry.get("stage") == "end" and entry.get("exit") == DONE:
            raise End(ALREADY, "this key was carried out before", ours=True, done_at=entry.get("at"))
    try:
        exit, body = VERBS[call.verb](call)
    except End as end:
        exit, body = end.exit, {"reason": end.reason, **end.facts}
    call.say("end", exit=exit, said=body.get("reason") or body.get("detail"))
    return exit, body


KEYED = ("hold-node", "release-own", "requeue")
VERBS: dict[str, Callable[[Call], tuple[int, dict[str, object]]]] = {
    "hold-node": hold_node,
    "release-own": release_own,
    "requeue": requeue,
    "status": status,
    "pause": pause,
    "resume": resume,
}
