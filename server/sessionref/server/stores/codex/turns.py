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

_HIDDEN: Final = re.compile(r"<(oai-mem-citation|proposed_plan)>")
"""How parts of an answer begin that its event goes without."""


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
    told: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    """The last entry of the run that each family tells."""

    asked: list[int] = msgspec.field(default_factory=list[int])
    """The turns before the run in which a person said something."""

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
        run = _certain(self.entries[self.run_start :])
        for entry in run:
            if entry.role == "user" and entry.turn not in self.asked[-1:]:
                self.asked.append(entry.turn)
        self.entries[self.run_start :] = run
        self.run_start = len(self.entries)
        self.told = {}

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
            self.told[said.family] = len(self.entries)
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
        if number <= 0 or not self.asked:
            return self.turn + 1
        first = self.asked[-min(number, len(self.asked))]
        del self.asked[-number:]
        # From the end, so that many of these cost no more than what they undo.
        while self.entries and self.entries[-1].turn >= first:
            self.entries.pop()
        self.run_start = len(self.entries)
        return first

    def _twin_of(self, said: Said) -> Entry | None:
        """The entry of the run that another family has told already.

        Families keep the order of what they tell, so that each looks at every entry once.
        """
        squeezed: str | None = None
        for at in range(self.told.get(said.family, self.run_start - 1) + 1, len(self.entries)):
            entry = self.entries[at]
            is_twin = entry.text == said.text or (said.id is not None and said.id == entry.id)
            if not is_twin:
                squeezed = _squeezed(said.text) if squeezed is None else squeezed
                is_twin = _squeezed(entry.text) == squeezed
            if is_twin:
                self.told[said.family] = at
                return entry
        return None


def entry_of(said: Said, turn: int) -> Entry:
    """An entry that nothing else tells yet."""
    return Entry(said.role, said.text, said.family, turn, said.is_certain, said.id)


def _certain(run: list[Entry]) -> list[Entry]:
    """What was said for certain in a run, if anything was: beside that, what was given to the model was injected."""
    certain = [entry for entry in run if entry.is_certain]
    return certain or run


def _squeezed(text: str) -> str:
    """What two tellings of a text have in common: not its white space, and not what events go without."""
    shown: list[str] = []
    unclosed: set[str] = set()
    start = at = 0
    while opening := _HIDDEN.search(text, at):
        at, closing = opening.end(), f"</{opening[1]}>"
        end = -1 if closing in unclosed else text.find(closing, at)
        if end < 0:
            # Looked for once: a text may be full of openings.
            unclosed.add(closing)
            continue
        shown.append(text[start : opening.start()])
        start = at = end + len(closing)
    shown.append(text[start:])
    return "".join("".join(shown).split())
