"""The one place where everything is put together."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot import __version__
from bot.act import Actor, act
from bot.arrivals import Arrivals
from bot.clock import Clock
from bot.config import AlertmanagerSite, address, secret
from bot.deliver import Deliverer, deliver
from bot.errors import ConfigError, XidbotError
from bot.events import Started
from bot.http import Listener
from bot.loops import Loop
from bot.model import Job, Observation, Request
from bot.pages import Pager, Paging, WithPager
from bot.ports import Gate, Roles, Scheduler
from bot.sender import Sender
from bot.sessions import rule_for
from bot.site import Site
from bot.slack import SlackApp, SlackChat, SlackRoles, Tokens, build_app, web_client
from bot.slack.files import SlackFiles
from bot.state import State
from bot.tick import Told, Watcher, tick
from bot.vitals import Vitals
from commands.run import Services, answer
from store.inbound import Inbound
from store.slots import Slots
from store.store import Store

if TYPE_CHECKING:
    from bot.eyes import Eyes
    from bot.sources.alertmanager import Alertmanager

log = logging.getLogger(__name__)
ACT_EVERY = 5.0  # s; every recorded action also wakes the loop
DELIVER_EVERY = 2.0
PAGE_EVERY = 5.0


def open_store(site: Site, db: str | None = None) -> Store:
    return Store.open(db or site.config.site.database)


def make_scheduler(site: Site) -> Scheduler:
    from bot.schedulers.slurm import SlurmScheduler

    slurm = site.config.scheduler

    def ours(job: Job) -> bool:
        return rule_for(job, site.policy) is not None

    return SlurmScheduler(str(slurm.conf) if slurm.conf else None, slurm.timeout, ours)


def make_gate(site: Site) -> Gate | None:
    """None without a gate: read-only."""
    from bot.schedulers.gate_process import GateProcess

    return GateProcess(site.config.scheduler.gate) if site.config.scheduler.gate else None


def make_eyes(site: Site, scheduler: Scheduler, store: Store) -> Eyes:
    from bot.eyes import Eyes

    return Eyes(site, scheduler, store)


def make_pager(site: Site) -> Pager | None:
    """None without an Alertmanager."""
    from bot.sources.alertmanager import Several

    am = site.config.alertmanager
    if am is None:
        return None

    slack = site.config.slack
    link = f"https://slack.com/app_redirect?channel={slack.channel}" if slack else ""
    paging = Paging(
        site.config.site.name, site.config.prometheus.node_labels, link, am.every, site.config.site.timezone
    )
    return Pager(Several(alertmanagers(am)), paging, am.pages)


def alertmanagers(am: AlertmanagerSite) -> list[Alertmanager]:
    from bot.http_session import DeadlineSession
    from bot.sources.alertmanager import Alertmanager

    def session() -> DeadlineSession:
        return DeadlineSession(am.timeout, source="alertmanager", token_file=am.token_file, ca_file=am.ca_file)

    return [Alertmanager(url, session()) for url in am.url]


def slack_tokens(site: Site) -> Tokens | None:
    """None when none is given. Raises ConfigError for an empty one, for one without the other, and for tokens that the
    site file has no channel for."""
    slack = site.config.slack
    bot = secret("SLACK_BOT_TOKEN", slack.bot_token_file if slack else None)
    app = secret("SLACK_APP_TOKEN", slack.app_token_file if slack else None)
    if bot is None and app is None:
        return None
    if bot is None or app is None:
        missing = "SLACK_BOT_TOKEN" if bot is None else "SLACK_APP_TOKEN"
        raise ConfigError(f"Slack needs both tokens; {missing} is missing")
    if slack is None:
        raise ConfigError(
            f"{site.path}: slack: missing", "the tokens are there; name the channel: slack: {channel: C…}"
        )
    return Tokens(bot, app)


def make_roles(site: Site, tokens: Tokens | None) -> Roles:
    """User groups need a token; without one their members are nobody."""
    slack = site.config.slack
    client = web_client(tokens.bot if tokens else "", slack.api_url if slack else "")
    return SlackRoles(client, slack.roles.model_dump() if slack else {}, slack.users if slack else {})


@dataclass(frozen=True, slots=True)
class Slack:
    """Both directions: what arrives becomes requests, what is due goes out."""

    inbound: SlackApp
    sender: Sender
    files: SlackFiles


def connect(tokens: Tokens, api_url: str, slots: Slots, inbox: Callable[[Request], None]) -> Slack:
    inbound = build_app(tokens, inbox, base_url=api_url)
    client = web_client(tokens.bot, api_url)
    return Slack(inbound, Sender(slots, SlackChat(client), time.time), SlackFiles(client))


def answerer(site: Site, roles: Roles) -> Callable[[Request, State, Observation, int], Told]:
    def tell(request: Request, state: State, seen: Observation, now: int) -> Told:
        reply = answer(request, Services(state, seen, site.policy, roles, now, site.config.site.timezone))
        return Told(reply.text, tuple(reply.events), reply.ok)

    return tell


class App:
    """A bot ready to run: three loops over one log. Raises ConfigError, StoreError, AuthFailed."""

    def __init__(self, site: Site, db: str | None = None, tokens: Tokens | None = None) -> None:
        """tokens None: nothing is connected, messages only wait."""
        self.site = site
        self.store = open_store(site, db)
        self.store.take_lease()
        self.slots = Slots(self.store.database)
        self.scheduler = make_scheduler(site)
        slack = site.config.slack
        self.slack = connect(tokens, slack.api_url, self.slots, self._asked) if tokens and slack else None
        self.roles = make_roles(site, tokens)
        self.pager = make_pager(site)
        self.listener: Listener | None = None
        self.vitals = Vitals(int(time.time()))
        self.eyes = make_eyes(site, self.scheduler, self.store)
        observer = WithPager(self.eyes.observer, self.pager) if self.pager else self.eyes.observer
        self.watcher = Watcher(self.store, observer, site.policy, answerer(site, self.roles), site.config.site.timezone)
        self.actor = Actor(self.store, self.scheduler, make_gate(site), self.roles, site.policy)
        self.deliverer = self._deliverer()
        self._wakes: list[Callable[[], None]] = []
        self._ended = threading.Event()
        self._error: XidbotError | None = None
        self._at_rest = True  # no turn is under way

    # -- parts -----------------------------------------------------------------------------------

    def _deliverer(self) -> Deliverer:
        slack = self.site.config.slack
        return Deliverer(
            store=self.store,
            slots=self.slots,
            policy=self.site.policy,
            tz=self.site.config.site.timezone,
            channel=slack.channel if slack else "",
            on_call={"on call": slack.on_call, "secondary": slack.secondary} if slack else {},
            send=self.slack.sender.send_due if self.slack else None,
            files=self.slack.files if self.slack else None,
            quiet=self.pager,
        )

    def _listener(self) -> Listener | None:
        http = self.site.config.http
        if http is None:
            return None
        state, waiting = self.store.state, lambda: {"messages_waiting": self.slots.waiting()}
        inbound, site = Inbound(self.store.database), self.site
        arrivals = Arrivals(inbound, site.policy, site.config.site.name, state, lambda: self.vitals, waiting)
        token = (lambda: secret("the listener's token", http.token_file)) if http.token_file else None
        return Listener(address(http.listen), arrivals.handlers(), token)

    def _asked(self, request: Request) -> None:
        """A listener's only work: a row, and the loops are woken."""
        self.store.ask(request)
        self.wake()

    def wake(self) -> None:
        for wake in self._wakes:
            wake()

    # -- turns -----------------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        """Say with which version and policy decisions are made from here on."""
        meta, site = self.store.state().meta, self.site
        if (meta.version, meta.policy, meta.write_mode) != (__version__, site.policy.hash, site.policy.write_mode):
            self.store.append([Started(now, __version__, site.policy.hash, site.policy.write_mode)])

    def tick(self, now: int) -> Observation:
        seen = tick(self.watcher, now)
        self.vitals = self.vitals.after(seen, now)
        return seen

    def act(self, now: int) -> None:
        act(self.actor, now)

    def deliver(self, now: int) -> None:
        deliver(self.deliverer, now)

    def page(self, now: int) -> None:
        """Apart from deliver: an Alertmanager that hangs must not hold up Slack."""
        if self.pager:
            self.pager.turn(self.store.state(), now)

    def once(self, now: int) -> Observation:
        """One round of all, in order."""
        self.begin(now)
        seen = self.tick(now)
        self.act(now)
        self.page(now)  # before deliver, which asks it what is silenced
        self.deliver(now)
        return seen

    # -- the service -----------------------------------------------------------------------------

    def run(self, clock: Clock) -> None:
        """Until stopped. Raises what ended it, if something did."""
        self.begin(clock.now())
        step = self.site.policy.numbers.time.step
        turns = (
            (float(step), "tick", self._tick_and_act),
            (ACT_EVERY, "act", lambda: self.act(clock.now())),
            (DELIVER_EVERY, "deliver", lambda: self.deliver(clock.now())),
            (PAGE_EVERY, "page", lambda: self.page(clock.now())),
        )
        self._clock = clock
        self.listener = self._listener()
        if self.listener:
            self.listener.start()
        try:
            for seconds, name, turn in turns:
                self._wakes.append(clock.every(min(seconds, step), name, Loop(name, turn, self._fail)))
            if self.slack:
                self.slack.inbound.start()
            self._ended.wait()
        finally:  # also when Slack refuses us, or on Ctrl-C: loops that go on would find the database closed
            self._at_rest = clock.stop()
        if self._error:
            raise self._error

    def _tick_and_act(self) -> None:
        self.tick(self._clock.now())
        for wake in self._wakes[1:]:
            wake()

    def _fail(self, error: XidbotError) -> None:
        self._error = error
        self._ended.set()

    def stop(self) -> None:
        self._ended.set()

    def close(self) -> None:
        """After run. A turn that was left behind keeps the database, and its lease until the process ends: it may be
        about to write down what it did to the cluster."""
        if self.listener:
            self.listener.stop()
        if self.slack:
            self.slack.inbound.stop()
        self.eyes.close()
        if self._at_rest:
            self.store.drop_lease()
            self.store.close()
