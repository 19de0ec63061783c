"""The log on standard error, written by a thread of its own, so that a host which does not read it blocks nothing."""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ("announce", "logging_to_standard_error")

MAX_WAITING_RECORDS: Final = 10_000
"""Log records that wait for standard error; more are dropped, for nobody seems to read them."""

FLUSH_SECONDS: Final = 0.2
"""How long the end of the process waits for the last records to be written."""

ANNOUNCEMENT: Final = logging.CRITICAL + 10
"""The level of lines that are meant for programs: always written, and as they are."""

logger = logging.getLogger(__name__)


def announce(line: str) -> None:
    """Write one line to standard error as it is, in turn with the log."""
    logger.log(ANNOUNCEMENT, "%s", line)


@contextmanager
def logging_to_standard_error(level: str = "warning") -> Generator[None]:
    """Send this process's log from that level on to standard error while inside."""
    # The default prints failures of logging itself to the very stream that does not take them.
    logging.raiseExceptions = False
    writer = _Writer()
    handler = _Enqueue(writer.records)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    writer.start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        writer.end()


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        if record.levelno == ANNOUNCEMENT:
            return record.getMessage()
        return f"sessionref: {record.levelname}: {super().format(record)}"


class _Enqueue(logging.Handler):
    """Hands records over and never waits."""

    def __init__(self, records: queue.Queue[str | None]) -> None:
        super().__init__()
        self.setFormatter(_Formatter())
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        """Format the record here, where its arguments are still what they were."""
        with suppress(queue.Full):
            self._records.put_nowait(self.format(record))


class _Writer(threading.Thread):
    """Writes lines as standard error takes them; a daemon, since that may be never."""

    def __init__(self) -> None:
        super().__init__(name="log", daemon=True)
        self.records: queue.Queue[str | None] = queue.Queue(MAX_WAITING_RECORDS)

    def run(self) -> None:
        """Write until the end is asked for."""
        while (line := self.records.get()) is not None:
            with suppress(OSError, ValueError):
                sys.stderr.write(line + "\n")
                sys.stderr.flush()

    def end(self) -> None:
        """Wait for what is still to be written, but not for long."""
        with suppress(queue.Full):
            self.records.put_nowait(None)
        self.join(FLUSH_SECONDS)
