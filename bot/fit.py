"""Fit first: could the job run again without some nodes? A prediction from what the scheduler shows."""

from __future__ import annotations

from collections.abc import Collection

from bot.model import Cluster, Fit, Job, Node

NO_LIMIT = 10 * 365 * 86400


def fit(job: Job, without: Collection[str], cluster: Cluster) -> Fit:
    """Nodes that could take the job now, its own counted as free because a requeue frees them."""
    own = set(job.latest.nodes) if job.latest and job.latest.alive else set()
    able = [n for n in cluster.nodes.values() if n.name not in without and _takes(n, job, own, cluster)]
    names = tuple(sorted(n.name for n in able))
    missing = [n for n in job.required if n not in names]
    if missing:
        return Fit(False, job.node_count, names, f"the job insists on {', '.join(missing)}")
    if len(names) < job.node_count:
        return Fit(False, job.node_count, names, f"it needs {job.node_count} nodes and {len(names)} could take it")
    spare = len(names) - job.node_count
    return Fit(True, job.node_count, names, f"{len(names)} nodes fit, {spare} more than it needs")


def _takes(node: Node, job: Job, own: Collection[str], cluster: Cluster) -> bool:
    mine = node.name in own
    return (
        node.up
        and node.open
        and (not job.partition or any(p in node.partitions for p in job.partition.split(",")))
        and job.features <= node.features
        and node.name not in job.excluded
        and (mine or (not node.full and (node.gpus or 0) - node.gpus_used >= job.gpus_per_node))
        and not _promised(node.name, job, cluster)
    )


def _promised(node: str, job: Job, cluster: Cluster) -> bool:
    """Reserved for others, or for maintenance before the job's time limit: the scheduler would not start it there."""
    until = cluster.at + (job.time_limit or NO_LIMIT)
    return any(
        node in r.nodes and r.name != job.reservation and r.start < until and r.end > cluster.at
        for r in cluster.reservations
    )
