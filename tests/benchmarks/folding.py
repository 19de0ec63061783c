"""The fold of many replacements: linear, whichever part of the surface they replace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import Measure, best_seconds, seconds_text
from benchmarks.homes import LogLines, write_log
from sessionref.server.stores.dsh import DshStore

__all__ = ("measure_folding",)

CHECKPOINT: Final = "compact-checkpoint"


def measure_folding(folder: Path, quick: bool) -> Measure:
    """Capture of logs with many replacements, and of four times as many."""
    few, many = (1_000, 4_000) if quick else (5_000, 20_000)
    shapes: dict[str, Callable[[int], Iterator[bytes]]] = {
        "tool outputs pruned, each where it stands": pruned_lines,
        "checkpoint after checkpoint, each replacing all": compacted_lines,
        "checkpoints behind a long surface": behind_lines,
    }
    rows: list[list[str]] = []
    for shape, lines in shapes.items():
        taken: list[float] = []
        for count in (few, many):
            session_id = f"session-{len(rows)}-{count}"
            write_log(folder, session_id, lines(count))
            taken.append(best_seconds(partial(DshStore(folder).capture, session_id, _no_check), 3))
        cost = f"{taken[1] / many * 1e6:.1f} us"
        rows.append([shape, seconds_text(taken[0]), seconds_text(taken[1]), f"{taken[1] / taken[0]:.1f}", cost])
    headings = ["REPLACEMENTS", f"{few:,}", f"{many:,}", "RATIO", "EACH"]
    return Measure("fold of replacements", headings, rows, ["a ratio of 4.0 is linear; a list with splices gives 16"])


def pruned_lines(count: int) -> Iterator[bytes]:
    """Every output of a long turn is replaced by a shorter one, from the first to the last."""
    log = LogLines()
    yield from (log.turn_start(), log.step(), log.user("Go."))
    first = log.last_seq + 1
    yield from (log.tool_result("A long output.", "call") for _ in range(count))
    yield from (_pruned(log, first + number) for number in range(count))
    yield from (log.step(end=True), log.turn_end())


def compacted_lines(count: int) -> Iterator[bytes]:
    """A prompt, and a checkpoint in its and the last checkpoint's place, again and again."""
    log = LogLines()
    yield from (log.turn_start(), log.step(), log.user("Begin."))
    for _ in range(count):
        last = log.last_seq
        yield log.user("And then?")
        yield log.user("So far.", kind=CHECKPOINT, surface=_range(last, last + 1), sourceEventSeqs=[last, last + 1])
    yield from (log.step(end=True), log.turn_end())


def behind_lines(count: int) -> Iterator[bytes]:
    """The same at the end of a surface that grows all the time."""
    log = LogLines()
    yield from (log.turn_start(), log.step())
    for _ in range(count):
        yield log.user("This stays.")
        yield log.user("This goes.")
        seq = log.last_seq
        yield log.user("So far.", kind=CHECKPOINT, surface=_range(seq, seq), sourceEventSeqs=[seq])
    yield from (log.step(end=True), log.turn_end())


def _pruned(log: LogLines, seq: int) -> bytes:
    return log.tool_result("Short.", "call", surface=_range(seq, seq), sourceEventSeqs=[seq])


def _range(start: int, end: int) -> dict[str, Any]:
    return {"op": "replace", "startSeq": start, "endSeq": end}


def _no_check() -> None:
    """Nobody cancels."""
