"""Slurm's replies as xidbot's words. Pure: text in, records out.

Nodes and reservations come from `scontrol show …` as text (22.05 has no JSON there), jobs from `squeue --json` in the
shapes of 21.08 to 25.x. Times in the text are Unix seconds, or local time that was printed with TZ=UTC. Every parser
raises BadReply when the reply as a whole cannot be used; a single record that cannot be understood is named in the
second value and never changes another record.
"""

from bot.slurm_records.hostlist import parse_hostlist
from bot.slurm_records.jobs import AGAIN, OPEN_JOB_ID, is_held, job_id_of, parse_jobs, state_words
from bot.slurm_records.nodes import TAG, gres_gpus, holder_of, node_fields, parse_nodes, tres_gpus
from bot.slurm_records.reservations import parse_reservations
from bot.slurm_records.values import (
    Record,
    as_int,
    as_list,
    as_map,
    as_text,
    as_time,
    exit_text,
    json_jobs,
    record_name,
)

__all__ = [
    "AGAIN",
    "OPEN_JOB_ID",
    "Record",
    "TAG",
    "as_int",
    "as_list",
    "as_map",
    "as_text",
    "as_time",
    "exit_text",
    "gres_gpus",
    "holder_of",
    "is_held",
    "job_id_of",
    "json_jobs",
    "node_fields",
    "parse_hostlist",
    "parse_jobs",
    "parse_nodes",
    "parse_reservations",
    "record_name",
    "state_words",
    "tres_gpus",
]
