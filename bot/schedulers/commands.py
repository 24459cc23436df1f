"""What is still missing for an action, given the cluster as it is. Pure, and the same for every scheduler that holds
nodes by a tag and reruns a job under its own id."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from bot.model import Action, Argv, Cluster, Done, Job, Next, Unclear, Wait

MAX_REASON = 200  # characters; Slurm keeps more, a person reading sinfo does not


def next_command(action: Action, cluster: Cluster) -> Next:
    """Asked again after every step, error or crash; the answer converges to Done."""
    step = COMMANDS.get(action.step)
    return step(action, cluster) if step else Unclear(f"no command for step {action.step}")


def reason(action: Action) -> str:
    """The tag that makes a hold ours, then why, then when it is looked at again."""
    review = f"; review {datetime.fromtimestamp(action.review, UTC):%Y-%m-%dT%H:%MZ}" if action.review else ""
    why = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in action.why)).strip()
    room = MAX_REASON - len(f"xidbot:{action.cause} ") - len(review)
    return f"xidbot:{action.cause} {why[:room]}{review}"


def _hold_node(action: Action, cluster: Cluster) -> Next:
    node = cluster.nodes.get(action.target)
    if node is None:
        return Unclear(f"the scheduler knows no node {action.target}")
    if node.ours:
        return Done(node.ours.tag == action.cause, f"{node.name} carries xidbot:{node.ours.tag}")
    if node.others:
        return Done(False, f"{node.name} is held by {node.others[0].by}: {node.others[0].why}")
    return Argv("hold-node", (node.name, "--reason", reason(action)))


def _release_node(action: Action, cluster: Cluster) -> Next:
    node = cluster.nodes.get(action.target)
    if node is None:
        return Unclear(f"the scheduler knows no node {action.target}")
    if node.ours is None:
        return Done(False, f"{node.name} is not held by xidbot")
    return Argv("release-own", (node.name,))


def _requeue(action: Action, cluster: Cluster) -> Next:
    job_id, _, ordinal = action.attempt.rpartition("#")
    job = cluster.jobs.get(job_id)
    if job is None or job.latest is None:
        return Unclear(f"the scheduler knows no job {job_id}")
    if job.latest.ordinal > int(ordinal):
        return _after_requeue(action, job, int(ordinal))
    if job.latest.state == "COMPLETING":
        return Wait(f"job {job_id} is still stopping")
    if not job.batch or not job.requeue:
        return Unclear(f"job {job_id} cannot be requeued")
    if job.latest.state in ("COMPLETED", "CANCELLED", "PENDING"):
        return Unclear(f"job {job_id} is {job.latest.state}")
    return Argv("requeue", (job_id, "--restart", ordinal))


def _after_requeue(action: Action, job: Job, ordinal: int) -> Next:
    """It was requeued, by us or by somebody; ours may still wait for its start time."""
    waits = job.latest is not None and job.latest.state == "PENDING" and job.why == "BeginTime"
    if waits and action.started is not None:
        return Argv("requeue", (job.id, "--restart", str(ordinal)))
    return Done(False, f"job {job.id} is at restart {job.latest.ordinal if job.latest else '?'}")


COMMANDS: dict[str, Callable[[Action, Cluster], Next]] = {
    "hold_node": _hold_node,
    "release_node": _release_node,
    "requeue": _requeue,
}
