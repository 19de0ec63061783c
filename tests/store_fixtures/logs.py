"""What fixtures of stores that keep log files have in common: a line a record, appended to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sessionref.server.store import CataloguedStore
from store_fixtures import Damage, Turn, open_named

__all__ = ("LogFixture", "iso", "lines_of")


class LogFixture:
    """The part of a StoreFixture that writes, appends and damages lines; a subclass says which records and where."""

    kind: str

    def __init__(self, home: Path) -> None:
        self.home = home
        self.logs: dict[str, Path] = {}

    def open(self) -> CataloguedStore:
        """A store of the home."""
        return open_named(self.kind, self.home)

    def records(self, name: str, talk: Sequence[Turn]) -> list[dict[str, Any]]:
        """The records that these turns add to a session, one a turn."""
        raise NotImplementedError

    def session_id(self, name: str) -> str:
        """The kind and the native id."""
        return f"{self.kind}:{name}"

    def create(self) -> None:
        """Make an empty home."""
        self.home.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, path: Path, records: Iterable[dict[str, Any]]) -> Path:
        """Write a log and remember where it is."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines_of(records))
        self.logs[name] = path
        return path

    def append(self, name: str, talk: Sequence[Turn]) -> None:
        """Add records at the end of the log."""
        with self.logs[name].open("ab") as file:
            file.write(lines_of(self.records(name, talk)))

    def remove(self, name: str) -> None:
        """Take the log away."""
        self.logs.pop(name).unlink()

    def damage(self, name: str, damage: Damage) -> None:
        """Damage the log; turns are found by the text of theirs."""
        path = self.logs[name]
        # At line feeds alone: texts may hold other line ends.
        lines = [line + b"\n" for line in path.read_bytes().split(b"\n")[:-1]]
        turns = [at for at, line in enumerate(lines) if self.is_turn(json.loads(line))]
        if damage == "torn-tail":
            lines = lines[: turns[-1] + 1]
            lines[-1] = lines[-1][: len(lines[-1]) // 2]
        elif damage == "corrupt-record":
            lines[turns[1]] = b'{"broken": \n'
        elif damage == "nul-block":
            lines[turns[2]] = b"\0" * 512 + lines[turns[2]]
        else:
            said = b"\xff" if damage == "invalid-utf8" else b"\\ud800"
            text = json.dumps(self.text_of(json.loads(lines[turns[0]])), ensure_ascii=False)[1:-1].encode()
            assert text in lines[turns[0]]
            lines[turns[0]] = lines[turns[0]].replace(text, said + text)
        path.write_bytes(b"".join(lines))

    def is_turn(self, record: dict[str, Any]) -> bool:
        """Whether a record is what somebody said."""
        raise NotImplementedError

    def text_of(self, record: dict[str, Any]) -> str:
        """The text of a turn."""
        raise NotImplementedError


def lines_of(records: Iterable[dict[str, Any]]) -> bytes:
    """Records as lines."""
    texts = (json.dumps(record, ensure_ascii=False) for record in records)
    # Lone surrogates are escaped, as JSON has them.
    return b"".join(text.encode(errors="backslashreplace") + b"\n" for text in texts)


def iso(milliseconds: int) -> str:
    """Unix milliseconds as agents write times."""
    from datetime import UTC, datetime, timedelta

    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
