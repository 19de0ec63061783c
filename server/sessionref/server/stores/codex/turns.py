"""The turns of a Codex conversation: the words of three families of records merged, and dropped where they were undone.

What stands next to each other with one role is a run. Within a run the families are three tellings of the same words
in the same order, each with gaps.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from sessionref.protocol.jsontext import utf8_length
from sessionref.server.stores.codex.said import RESPONSE, Said

__all__ = ("Entry", "Turns", "entry_of")

_HIDDEN: Final = re.compile(r"<(oai-mem-citation|proposed_plan)>.*?</\1>", re.DOTALL)
"""Parts of an answer that its event goes without."""


class Entry(msgspec.Struct, array_like=True, gc=False):
    """What somebody said; `families` are the bits of the families that say it, `turn` numbers the turns."""

    role: Literal["user", "assistant"]
    text: str
    families: int
    turn: int
    is_certain: bool = True
    id: str | None = None
    is_checkpoint: bool = False


class Turns(msgspec.Struct, array_like=True):
    """Everything that was said and not undone, in order."""

    entries: list[Entry] = msgspec.field(default_factory=list[Entry])
    turn: int = 0
    is_marked: bool = False
    """Whether the turn is one that Codex marked the beginning of, and not yet the end."""

    run_start: int = 0

    def begin(self) -> None:
        """A turn begins."""
        self.end()
        self.turn += 1
        self.is_marked = True

    def end(self) -> None:
        """The turn is over."""
        self.settle()
        self.is_marked = False

    def settle(self) -> None:
        """The run is over: nothing that comes tells its words once more."""
        self.entries[self.run_start :] = _certain(self.entries[self.run_start :])
        self.run_start = len(self.entries)

    def settled(self) -> list[Entry]:
        """All entries as they are if nothing comes any more; what may still come finds them unchanged."""
        return [*self.entries[: self.run_start], *_certain(self.entries[self.run_start :])]

    def say(self, said: Said) -> int:
        """Take what was said; returns by how many bytes of UTF-8 the entries have grown."""
        if self.run_start < len(self.entries) and self.entries[-1].role != said.role:
            self.settle()
        twin = self._twin_of(said)
        if twin is None:
            if said.role == "user" and not self.is_marked:
                self.turn += 1
            self.entries.append(entry_of(said, self.turn))
            return utf8_length(said.text)
        twin.families |= said.family
        twin.is_certain |= said.is_certain
        if said.family != RESPONSE:
            return 0
        # What the model is given is the whole.
        grown = utf8_length(said.text) - utf8_length(twin.text)
        twin.text, twin.id = said.text, said.id or twin.id
        return grown

    def drop(self, number: int) -> int:
        """Undo the last turns in which a person said something; returns the first turn that is undone."""
        self.settle()
        turns = sorted({entry.turn for entry in self.entries if entry.role == "user"})
        if number <= 0 or not turns:
            return self.turn + 1
        first = turns[-min(number, len(turns))]
        self.entries = [entry for entry in self.entries if entry.turn < first]
        self.run_start = len(self.entries)
        return first

    def _twin_of(self, said: Said) -> Entry | None:
        """The entry of the run that another family has told already; families keep the order of what they tell."""
        twin: Entry | None = None
        for at in range(len(self.entries) - 1, self.run_start - 1, -1):
            entry = self.entries[at]
            if entry.families & said.family:
                break
            if (said.id is not None and said.id == entry.id) or _is_same(said.text, entry.text):
                twin = entry
        return twin


def entry_of(said: Said, turn: int) -> Entry:
    """An entry that nothing else tells yet."""
    return Entry(said.role, said.text, said.family, turn, said.is_certain, said.id)


def _certain(run: list[Entry]) -> list[Entry]:
    """What was said for certain in a run, if anything was: beside that, what was given to the model was injected."""
    certain = [entry for entry in run if entry.is_certain]
    return certain or run


def _is_same(one: str, other: str) -> bool:
    return one == other or _squeezed(one) == _squeezed(other)


def _squeezed(text: str) -> str:
    return "".join(_HIDDEN.sub("", text).split())
