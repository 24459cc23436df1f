"""What the HTTP listener does with what arrives: it is checked, becomes a row, and is acknowledged; the loops read it
when they come round."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from bot.alerts import read_webhook
from bot.http import EXPOSITION, Handlers, Reply
from bot.markers import read_marker
from bot.policy import Policy
from bot.state import State
from bot.vitals import Vitals, exposition, sick
from store.inbound import Inbound

log = logging.getLogger(__name__)


class Arrivals:
    """vitals: how the bot is by now. extra: more gauges for /metrics."""

    def __init__(
        self,
        inbound: Inbound,
        policy: Policy,
        cluster: str,
        state: Callable[[], State],
        vitals: Callable[[], Vitals],
        extra: Callable[[], Mapping[str, float]] = dict,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._inbound, self._policy, self._cluster = inbound, policy, cluster
        self._state, self._vitals, self._extra, self._clock = state, vitals, extra, clock
        self._cut = 0

    def handlers(self) -> Handlers:
        return Handlers(self.alertmanager, self.checkpoint, self.healthz, self.metrics)

    def alertmanager(self, body: Any) -> Reply:
        """What cannot be read of it is told to the sender and in the log; the rest counts."""
        now = self._now()
        try:
            told = read_webhook(body, now)
        except ValueError as error:
            log.warning("alertmanager: a webhook that cannot be read: %s", error)
            return Reply(400, f"{error}\n")
        self._inbound.tell(told.alerts, now)
        for problem in told.problems:
            log.warning("alertmanager: an alert that cannot be read: %s", problem)
        if told.cut:
            self._cut += told.cut
            log.warning("alertmanager: the webhook left out %d alerts; raise max_alerts of its receiver", told.cut)
        return Reply(200, "".join(f"{line}\n" for line in (f"{len(told.alerts)} kept", *told.problems)))

    def checkpoint(self, body: Any) -> Reply:
        try:
            marker = read_marker(body, self._now())
        except ValueError as error:
            return Reply(400, f"{error}\n")
        return Reply(200, "kept\n" if self._inbound.push(marker) else "known already\n")

    def healthz(self) -> Reply:
        why = sick(self._vitals(), self._now(), self._policy)
        return Reply(503, f"{why}\n") if why else Reply()

    def metrics(self) -> Reply:
        now = self._now()
        extra = {
            "alertmanager_alerts_firing": len(self._inbound.alerts(now, now)),
            "alertmanager_alerts_left_out": self._cut,
            **self._extra(),
        }
        text = exposition(self._state(), self._vitals(), now, self._policy, self._cluster, extra)
        return Reply(200, text, EXPOSITION)

    def _now(self) -> int:
        return int(self._clock())
