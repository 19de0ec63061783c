"""`sessionref candidates` and `sessionref prepare`: one call to a server that is spawned for it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import anyio
import msgspec

from sessionref.protocol.errors import ErrorCode
from sessionref.protocol.jsontext import encode_json
from sessionref.protocol.methods import MAX_CANDIDATES, Candidate, PrepareResult
from sessionref.server.printable import printable
from sessionref.server.tables import format_table

__all__ = ("run_call",)

_JOINERS: Final = "\u200c\u200d"
"""Of what does not print, labels have these alone; without them some scripts and pictures are not themselves."""

_HEADINGS: Final = ("TITLE", "DIRECTORY", "CREATED", "ORIGIN", "MENTION")


class _Found(NamedTuple):
    """The rows to show, and whether there are more."""

    candidates: Sequence[Candidate]
    has_more: bool


def run_call(options: argparse.Namespace, server: Sequence[str]) -> int:
    """Run one call and print its result. Returns the exit code; raises SessionReferenceError as the client does."""
    result = anyio.run(_call, options, server)
    if options.json:
        text = encode_json(result).decode()
    elif isinstance(result, PrepareResult):
        text = _prepared(result)
    else:
        text = _listed(result)
    sys.stdout.write(text + "\n")
    return 0


async def _call(options: argparse.Namespace, server: Sequence[str]) -> Any:
    from sessionref.client import spawn

    cwd = options.cwd or os.getcwd()

    def show(line: str) -> None:
        # Where the server listens is no news to whoever has it on its own pipe, and a refusal is raised.
        if not line.startswith('{"listening"') and ErrorCode.INVALID_CONFIG not in line:
            sys.stderr.write(line + "\n")

    async with spawn(server, on_log=show) as client:
        if options.command == "candidates":
            find = partial(
                client.candidates, options.agent, options.query, cwd=cwd, include_subagents=options.subagents
            )
            if options.json or options.limit is not None:
                rows = await find(limit=options.limit)
                return rows if options.json else _Found(rows, has_more=False)
            # One more than are shown by default tells whether there are more.
            limit: int = (await client.initialize()).limits["candidateLimit"]
            rows = await find(limit=min(limit + 1, MAX_CANDIDATES))
            return _Found(rows[:limit], has_more=len(rows) > limit)
        text = sys.stdin.read() if options.text == "-" else options.text
        return await client.prepare(options.agent, text, cwd=cwd)


def _listed(found: _Found) -> str:
    candidates = found.candidates
    if not candidates:
        return "No session matches; `sessionref doctor` shows which stores there are."
    rows = [
        [
            printable(row.display_title, keep=_JOINERS),
            "here" if row.same_workspace else printable(_text(row.cwd)),
            _when(row.created_at),
            row.origin,
            printable(row.mention, keep=_JOINERS),
        ]
        for row in candidates
    ]
    if sys.stdout.isatty():
        # A mention is long, and is there to be copied: it gets a line of its own.
        lines = format_table(_HEADINGS[:-1], [row[:-1] for row in rows]).split("\n")
        for at, row in enumerate(rows, 1):
            lines[at] += f"\n    {row[-1]}"
        table = "\n".join(lines)
    else:
        table = format_table(_HEADINGS, rows)
    return f"{table}\n{len(rows)} sessions are shown; --limit shows more." if found.has_more else table


def _prepared(result: PrepareResult) -> str:
    parts: list[str] = []
    if not isinstance(result.additional_context, msgspec.UnsetType):
        parts.append("--- context for the model " + "-" * 54)
        parts += [block.text for block in result.additional_context.content]
    if not isinstance(result.diagnostics, msgspec.UnsetType):
        parts.append("--- diagnostics " + "-" * 64)
        parts += [f"{row.kind}: {row.detail}" for row in result.diagnostics]
    content = printable(str(result.content), keep=f"\n\t{_JOINERS}")
    return "\n".join([content, *(printable(part, keep="\n\t") for part in parts)])


def _text(value: str | msgspec.UnsetType) -> str:
    return "" if isinstance(value, msgspec.UnsetType) else value


def _when(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(milliseconds / 1000))
