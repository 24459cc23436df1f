"""`xidbot doctor`: looks at everything a site stands on."""

from __future__ import annotations

import sys

import click


@click.command("doctor", short_help="What is wrong here, each with its remedy.")
@click.option("--json", "as_json", is_flag=True, help="The findings as JSON.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Looks at the site file, the database, Prometheus, the scheduler, the runs' logs and checkpoints, the kernel logs,
    the listener, Alertmanager, the gate and Slack; changes nothing.

    Exit 0 all is well, 1 something was found, 2 the site file is wrong, 3 something cannot be reached. Run it under the
    bot's account: rights and sudo rules are that account's.

    Example: xidbot doctor
    """
    import json
    from dataclasses import asdict
    from pathlib import Path

    from bot import doctor as house
    from bot.config import path_of
    from bot.doctor_site import fail, patient
    from bot.errors import ConfigError
    from bot.site import read_site

    try:
        site = read_site(path_of(ctx.obj["config"]))
    except ConfigError as error:
        click.echo(str(fail(f"site file: {error.message}", error.remedy or "correct these lines")))
        sys.exit(2)
    here = patient(site, Path(ctx.obj["db"] or site.config.site.database))
    findings = house.examine(here, lambda name: click.echo(f"looking at {name} …", err=True))
    click.echo(json.dumps([asdict(one) for one in findings], indent=2) if as_json else "\n".join(map(str, findings)))
    sys.exit(house.exit_code(findings))
