from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from engine_doubles import PATIENCE
from sessionref.server import logs
from sessionref.server.logs import logging_to_standard_error

logger = logging.getLogger("sessionref.test")


class FullPipe(io.TextIOBase):
    """A standard error that takes nothing until it is drained."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.drained = threading.Event()
        self.written: list[str] = []

    def write(self, text: str, /) -> int:
        self.reached.set()
        assert self.drained.wait(2 * PATIENCE)
        self.written.append(text)
        return len(text)


@pytest.fixture(autouse=True)
def _root_logger_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers, raises = root.level, list(root.handlers), logging.raiseExceptions
    yield
    assert root.handlers == handlers
    root.setLevel(level)
    logging.raiseExceptions = raises


@contextmanager
def standard_error_that_nobody_reads() -> Generator[FullPipe]:
    """A full standard error, drained at the end. No fixture: pytest puts its own in place before the test begins."""
    pipe = FullPipe()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", pipe)
        try:
            yield pipe
        finally:
            pipe.drained.set()


def test_records_stand_on_standard_error_with_their_level(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with logging_to_standard_error():
        logger.warning("a %s", "warning")
        logger.error("an error")
    assert stream.getvalue() == "sessionref: WARNING: a warning\nsessionref: ERROR: an error\n"


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_records_below_the_level_are_left_out(monkeypatch: pytest.MonkeyPatch, level: str, shown: int) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with logging_to_standard_error(level):
        for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logger.log(number, "x")
    assert len(stream.getvalue().splitlines()) == shown


def test_a_traceback_stands_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with logging_to_standard_error():
        try:
            raise ValueError("what went wrong")
        except ValueError as error:
            logger.error("incident %s", "1f", exc_info=error)
    assert "incident 1f" in stream.getvalue()
    assert "ValueError: what went wrong" in stream.getvalue()


def test_nothing_is_logged_there_any_more_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with logging_to_standard_error():
        pass
    logger.warning("too late")
    assert stream.getvalue() == ""


def test_logging_does_not_wait_for_a_standard_error_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING_RECORDS", 10)
    done = threading.Event()

    def work() -> None:
        for number in range(100):
            logger.warning("%d", number)
        done.set()

    with standard_error_that_nobody_reads() as pipe, logging_to_standard_error():
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert pipe.reached.wait(PATIENCE)
        assert done.wait(PATIENCE)
        thread.join()
        pipe.drained.set()


def test_the_end_does_not_wait_for_a_standard_error_that_nobody_reads() -> None:
    left = threading.Event()

    def work() -> None:
        with logging_to_standard_error():
            logger.warning("first")
            assert pipe.reached.wait(PATIENCE)
            logger.warning("second")
        left.set()

    with standard_error_that_nobody_reads() as pipe:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert left.wait(PATIENCE)
        thread.join()


def test_the_writing_thread_ends_with_the_log() -> None:
    before = set(threading.enumerate())
    with logging_to_standard_error():
        started = set(threading.enumerate()) - before
    for thread in started:
        thread.join(1)
    assert [thread for thread in started if thread.is_alive()] == []


def test_the_last_record_is_written_although_its_writing_has_only_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(io.StringIO):
        def write(self, text: str, /) -> int:
            reached.set()
            ending.wait(0.05)
            return super().write(text)

    reached, ending, stream = threading.Event(), threading.Event(), Slow()
    monkeypatch.setattr(sys, "stderr", stream)
    with logging_to_standard_error():
        logger.warning("the last")
        assert reached.wait(PATIENCE)
    written = stream.getvalue()
    ending.set()
    assert written == "sessionref: WARNING: the last\n"
