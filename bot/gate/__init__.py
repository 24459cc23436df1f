"""xidbot-gate: the only program of xidbot that changes Slurm.

    xidbot-gate VERB [TARGET] [--reason R] [--restart N] [--why W] --key K

It runs under the one account that may drain, prints one JSON object and exits 0 done, 3 already satisfied, 4 refused,
5 failed (ask again with the same key), 6 unclear (a person must look). One key happens once, also when a caller died
or two call at the same time: a lock, and a log that is read first. A command that fails may have acted, so Slurm is
read after every one, and only what was read counts. Its settings lie in a file that the caller cannot choose.

As the gate itself it needs the standard library, yaml and the words of Slurm, nothing else of xidbot.
"""

from bot.gate.program import main

__all__ = ["main"]
