"""xidbot: keeps GPU training runs alive, and keeps the record of how."""

__version__ = "0.1.0"
