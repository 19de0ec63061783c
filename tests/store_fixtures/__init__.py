"""Small homes of every agent, written by us from the documented shapes: a folder here for each kind of store.

The contract suite for stores runs over every folder, so that a new store is tested by adding one. What a kind cannot
have, or has in another way than most, it declares by `traits`; nothing is passed over because it is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Final, Literal, Protocol, cast, get_args

from sessionref.server.store import CataloguedStore
from sessionref.server.stores.registry import open_stores

__all__ = (
    "CREATED_AT",
    "DAMAGES",
    "KINDS",
    "USUAL_COSTS",
    "Cost",
    "Damage",
    "StoreFixture",
    "Traits",
    "Turn",
    "open_fixture",
    "open_named",
    "traits_of",
)

Turn = tuple[Literal["user", "assistant"], str]

Damage = Literal["torn-tail", "corrupt-record", "nul-block", "invalid-utf8", "lone-surrogate"]
"""What a crash, a full disk or a careless program does to a session; see `StoreFixture.damage`."""

DAMAGES: Final[tuple[Damage, ...]] = get_args(Damage)

Cost = Literal["nothing", "the-record", "the-session", "impossible"]
"""What damage takes away: no text, the damaged record alone, everything; or it cannot happen to the kind."""

USUAL_COSTS: Final[Mapping[Damage, Cost]] = {
    "torn-tail": "the-record",
    "corrupt-record": "the-record",
    "nul-block": "nothing",
    "invalid-utf8": "nothing",
    "lone-surrogate": "nothing",
}

CREATED_AT: Final = 1_790_000_000_000
"""When sessions of fixtures were made, in Unix ms, where a test says nothing else."""

KINDS: Final = sorted(path.parent.name.replace("_", "-") for path in Path(__file__).parent.glob("*/__init__.py"))
"""The kinds of stores that have a folder here."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What differs between kinds of stores; a Fixture class has `traits` if its kind differs from these."""

    costs: Mapping[Damage, Cost] = field(default_factory=lambda: USUAL_COSTS)
    """What each damage costs; write `{**USUAL_COSTS, "torn-tail": "impossible"}`."""

    has_own_files: bool = True
    """Whether each session has a file that is its own, which `write` returns; false for rows of a database."""

    has_projects: bool = True
    """Whether the files of sessions lie in folders of projects, or of days, so that two of them can have one name."""

    marks_formats: bool = True
    """Whether sessions say in which format they are, so that there can be a newer one."""

    format_version: int | None = None
    """What captures say of the format."""

    hides_subagents: bool = True
    """Whether sub-agents' sessions are left out unless they are asked for."""

    titles_by_prompt: bool = True
    """Whether a session without a title is called by the first line of its first prompt."""

    tells_prompts: bool = True
    """Whether lessons say that a session has no prompt."""

    follows_folder_links: bool = False
    """Whether the folder that a session's file is in may be a link."""


class StoreFixture(Protocol):
    """A home of one agent that a test writes sessions into, each under a name that is its native id.

    Optional beside these: `traits` (see there), and `remove(name)`, which takes a session away as the agent does.
    """

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
        cwd: str | None = "/srv/here",
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


def open_named(kind: str, home: Path) -> CataloguedStore:
    """A store of a home, as `--store KIND:home` opens it."""
    (store,) = open_stores([f"{kind}:{home}"], {})
    assert isinstance(store, CataloguedStore)
    return store


def open_fixture(kind: str, home: Path) -> StoreFixture:
    """The fixture of a kind of store, with a home that is not there yet."""
    return _fixture_class(kind)(home)


def traits_of(kind: str) -> Traits:
    """What a kind of store declares, or what is usual."""
    found: Traits = getattr(_fixture_class(kind), "traits", Traits())
    return found


def _fixture_class(kind: str) -> Callable[[Path], StoreFixture]:
    return cast("Callable[[Path], StoreFixture]", import_module(f"store_fixtures.{kind.replace('-', '_')}").Fixture)
