"""Small homes of every agent, written by us from the documented shapes: a folder here for each kind of store.

The contract suite for stores runs over every folder, so that a new store is tested by adding one.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, Literal, Protocol, cast

from sessionref.server.store import CataloguedStore

__all__ = ("CREATED_AT", "KINDS", "Damage", "StoreFixture", "Turn", "open_fixture")

Turn = tuple[Literal["user", "assistant"], str]

Damage = Literal["torn-tail", "corrupt-record", "nul-block", "invalid-utf8", "lone-surrogate"]
"""What a crash, a full disk or a careless program does to a session; see `StoreFixture.damage`."""

CREATED_AT: Final = 1_790_000_000_000
"""When sessions of fixtures were made, in Unix ms, where a test says nothing else."""

KINDS: Final = sorted(path.parent.name.replace("_", "-") for path in Path(__file__).parent.glob("*/__init__.py"))
"""The kinds of stores that have a folder here."""


class StoreFixture(Protocol):
    """A home of one agent that a test writes sessions into, each under a name that is its native id."""

    kind: str
    home: Path

    def open(self) -> CataloguedStore:
        """A store of the home, as `--store KIND:home` opens it."""
        ...

    def session_id(self, name: str) -> str:
        """The id under which sessionref knows a session."""
        ...

    def name(self, number: int) -> str:
        """A native id of the shape that the agent gives, another for each number."""
        ...

    def create(self) -> None:
        """Make an empty home: the agent was installed and never used."""
        ...

    def write(
        self,
        name: str,
        talk: Sequence[Turn],
        *,
        title: str | None = None,
        cwd: str | None = "/work/here",
        created_at: int = CREATED_AT,
    ) -> Path:
        """Write a session as the agent does in its newest format; returns the file that holds it."""
        ...

    def append(self, name: str, talk: Sequence[Turn]) -> None:
        """Let a session go on, as the agent does."""
        ...

    def write_subagent(self, name: str, parent: str, talk: Sequence[Turn]) -> str:
        """Write a sub-agent's session below its parent's, which is written already; returns its native id."""
        ...

    def write_newer(self, name: str) -> None:
        """Write a session in a format newer than any that is known, if the agent marks formats at all."""
        ...

    def damage(self, name: str, damage: Damage) -> None:
        """Damage a session that has at least four turns.

        torn-tail: its last turn is written half. corrupt-record: its second turn is no JSON any more. nul-block: a
        block of NULs stands before its third turn. invalid-utf8: its first turn has a byte that is no UTF-8 before its
        text. lone-surrogate: its first turn has an escaped lone surrogate before its text.
        """
        ...


def open_fixture(kind: str, home: Path) -> StoreFixture:
    """The fixture of a kind of store, with a home that is not there yet."""
    made: StoreFixture = cast("StoreFixture", import_module(f"store_fixtures.{kind.replace('-', '_')}").Fixture(home))
    return made
