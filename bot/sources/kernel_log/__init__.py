"""Kernel logs as a source of Xids: files of journal entries and of syslog, or a command that prints entries."""

from bot.sources.kernel_log.events import Event, GpuXid
from bot.sources.kernel_log.source import Cursors, KernelLog, kernel_log

__all__ = ["Cursors", "Event", "GpuXid", "KernelLog", "kernel_log"]
