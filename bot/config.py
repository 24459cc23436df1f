"""The site file. One file, strict: an unknown key is refused with its line and the nearest known one."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from bot import yamlfile
from bot.errors import ConfigError
from bot.model import Mode
from bot.policy import SessionRule
from bot.storage.numbers import MountFacts
from bot.yamlfile import Duration, Located, Strict

ENV = "XIDBOT_CONFIG"
DEFAULT = "xidbot.yaml"


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"{name!r} is no time zone; write one like Asia/Seoul or UTC") from error
    return name


def _pattern(text: str) -> str:
    try:
        groups = re.compile(text).groups
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    if groups != 1:
        raise ValueError(f"{text!r} must have exactly one group: the node's name")
    return text


def _url(text: str) -> str:
    if not re.match(r"^https?://[^\s/]+", text):
        raise ValueError(f"{text!r} is no http(s) URL")
    return text.rstrip("/")


Url = Annotated[str, AfterValidator(_url)]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Urls = Annotated[tuple[Url, ...], BeforeValidator(_listed), Field(min_length=1)]


class Site(Strict):
    name: str = Field(min_length=1)
    timezone: Annotated[str, AfterValidator(_zone)] = "UTC"
    write_mode: Mode = "observe"
    database: Path = Path("xidbot.db")


class PrometheusSite(Strict):
    url: Url
    token_file: Path | None = None
    ca_file: Path | None = None
    node_labels: tuple[str, ...] = ("node", "Hostname", "instance")
    node_pattern: Annotated[str, AfterValidator(_pattern)] = r"^([^.:]+)"
    dcgm_jobs: tuple[str, ...] = ("dcgm", "dcgm-exporter", "nvidia-dcgm-exporter", "gpu-metrics")
    timeout: Duration = 10


class SlurmSite(Strict):
    kind: Literal["slurm"] = "slurm"
    conf: Path | None = None
    gate: tuple[str, ...] = ()
    timeout: Duration = 10


class SlackRoles(Strict):
    """User ids (U…), user group ids (S…), or "*" for everyone. An empty list is nobody."""

    admin: tuple[str, ...] | Literal["*"] = ()
    operator: tuple[str, ...] | Literal["*"] = ()
    viewer: tuple[str, ...] | Literal["*"] = ()


class SlackSite(Strict):
    channel: str = Field(pattern=r"^[CGD][A-Z0-9]{2,}$")
    mode: Literal["socket"] = "socket"
    on_call: str = ""  # user or user group mentioned when something waits for a person
    secondary: str = ""
    roles: SlackRoles = SlackRoles()
    users: Mapping[str, str] = {}
    bot_token_file: Path | None = None
    app_token_file: Path | None = None
    api_url: Url = "https://slack.com/api"


def address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8095`, `[::1]:8095`, `localhost:8095`. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    bracketed = bare != host
    if not colon or not bare or (":" in bare) != bracketed:
        raise ValueError(f"{text!r} is no address; write it like 127.0.0.1:8095")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r}: {port!r} is no port; write it like 127.0.0.1:8095")
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """Only what surely is: another name may lead anywhere."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _address(text: str) -> str:
    address(text)
    return text


class HttpSite(Strict):
    """The listener for all that comes in."""

    listen: Annotated[str, AfterValidator(_address)] = "127.0.0.1:8095"
    token_file: Path | None = None

    @model_validator(mode="after")
    def _closed_to_strangers(self) -> Self:
        if self.token_file is None and not is_loopback(address(self.listen)[0]):
            raise ValueError(f"{self.listen} can be reached from outside: give a token_file, or listen on 127.0.0.1")
        return self


class AlertmanagerSite(Strict):
    """url: one, or all of a highly available set. pages: what wants a person is sent to each of them, each `every`;
    silences are read either way, from whichever answer."""

    url: Urls
    token_file: Path | None = None
    ca_file: Path | None = None
    timeout: Duration = 10
    pages: bool = True
    every: Duration = 60


def _absolute(pattern: str) -> str:
    if not pattern.startswith("/"):
        raise ValueError(f"{pattern!r} is no absolute path; write it like /var/log/remote/*/kern.log")
    return pattern


LogGlob = Annotated[str, AfterValidator(_absolute)]


class KernelLogSite(Strict):
    """Kernel logs of the nodes. journal: files with an entry in JSON a line. command: prints such entries; `$since` in
    it becomes Unix seconds. syslog: plain log files, which anybody on a node can write to."""

    journal: tuple[LogGlob, ...] = ()
    command: tuple[str, ...] = ()
    syslog: tuple[LogGlob, ...] = ()
    timezone: Annotated[str, AfterValidator(_zone)] | None = None
    timeout: Duration = 5


class LogsSite(Strict):
    kernel_log: KernelLogSite = KernelLogSite()


class NodeSite(Strict):
    """Expected GPUs where the scheduler's Gres does not tell the truth. nodes: a host list."""

    nodes: str
    gpus: int = Field(ge=0, le=64)


class Config(Strict):
    site: Site
    prometheus: PrometheusSite
    scheduler: SlurmSite
    sessions: tuple[SessionRule, ...] = ()
    slack: SlackSite | None = None
    http: HttpSite | None = None
    alertmanager: AlertmanagerSite | None = None
    logs: LogsSite = LogsSite()
    expected: tuple[NodeSite, ...] = ()
    storage: MountFacts = MountFacts()
    policy: Mapping[str, Any] = {}
    signals: Mapping[str, Any] = {}
    playbooks: tuple[Mapping[str, Any], ...] = ()


def path_of(given: str | None) -> Path:
    """--config, else $XIDBOT_CONFIG, else ./xidbot.yaml."""
    return Path(given or os.environ.get(ENV) or DEFAULT)


def load(path: Path) -> tuple[Config, Located]:
    """Raises ConfigError naming every fault with its line."""
    if not path.exists():
        raise ConfigError(f"{path}: no such site file", f"name one with --config or ${ENV}; README shows the smallest")
    located = yamlfile.read(path)
    return yamlfile.validate(Config, located), located


def secret(name: str, file: Path | None) -> str | None:
    """The secret from a file or the environment; None = absent. Empty is refused: it is never meant (rivals: Slack
    silently off when an empty value overrides)."""
    if file is not None:
        try:
            value = file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read for {name}: {error.strerror}") from error
        if not value:
            raise ConfigError(f"{file}: is empty; it should hold {name}")
        return value
    found = os.environ.get(name)
    if found is not None and not found.strip():
        raise ConfigError(f"${name} is set but empty", "unset it to run without Slack, or give the token")
    return found.strip() if found else None
