"""The log on standard error, written by a thread of its own, so that a host which does not read it blocks nothing."""

from __future__ import annotations

import logging
import logging.handlers
import queue
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

__all__ = ("logging_to_standard_error",)

MAX_WAITING_RECORDS: Final = 10_000
"""Log records that wait for standard error; more are dropped, for nobody seems to read them."""

FLUSH_SECONDS: Final = 0.2
"""How long the end of the process waits for the last records to be written."""


@contextmanager
def logging_to_standard_error(level: str = "warning") -> Generator[None]:
    """Send this process's log from that level on to standard error while inside."""
    # The default prints failures of logging itself to the very stream that does not take them.
    logging.raiseExceptions = False
    records: queue.Queue[logging.LogRecord] = queue.Queue(MAX_WAITING_RECORDS)
    writer = logging.StreamHandler()
    writer.setFormatter(logging.Formatter("sessionref: %(levelname)s: %(message)s"))
    listener = logging.handlers.QueueListener(records, writer)
    handler = logging.handlers.QueueHandler(records)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        deadline = time.monotonic() + FLUSH_SECONDS
        while not records.empty() and time.monotonic() < deadline:
            time.sleep(0.005)
