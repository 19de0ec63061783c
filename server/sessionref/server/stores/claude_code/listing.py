"""What lies in the folders of a home, looked at again only where a folder has changed, and the stems of sub-agents.

A person types while this is asked, with thousands of sessions there: a folder costs a look at its time, not at its
names.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from typing import Final, NamedTuple

from sessionref.server.stores.claude_code.layout import is_project, is_subagent_stem
from sessionref.server.stores.file_states import is_settled
from sessionref.server.stores.folders import Folder

__all__ = ("NOTHING", "Contents", "Listings")

_LOG: Final = ".jsonl"
_NEVER: Final = -1


class Contents(NamedTuple):
    """What lies in a folder: its logs, and its folders and links, which may lead to some; both sorted."""

    logs: tuple[str, ...]
    folders: tuple[str, ...]


NOTHING: Final = Contents((), ())


class Listings:
    """Remembers the contents of folders by their paths, each as long as its time does not change. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int, Contents]] = {}
        self._nested: Counter[str] = Counter()
        self._flat: Counter[str] = Counter()

    def known(self, path: str, changed_ns: int) -> Contents | None:
        """The contents of a folder that was changed last at that time; None if it must be listed."""
        with self._lock:
            listed_for, contents = self._known.get(path, (_NEVER, None))
        return contents if listed_for == changed_ns else None

    def take(self, path: str, changed_ns: int, folder: Folder) -> Contents:
        """List a folder that was changed last at that time before it was opened. Raises OSError."""
        # One that changed a moment ago may change again without a trace.
        listed_for = changed_ns if is_settled(changed_ns) else _NEVER
        contents = Contents(
            tuple(name for name in folder.names() if name.endswith(_LOG)),
            tuple(folder.folders_and_links()) if is_project(path) else (),
        )
        with self._lock:
            self._forget(path)
            self._known[path] = listed_for, contents
            self._stems(path).update(_subagents(contents))
        return contents

    def keep_only(self, paths: Collection[str]) -> None:
        """Forget the folders that are not among these."""
        with self._lock:
            for path in self._known.keys() - set(paths):
                self._forget(path)

    def is_shared(self, stem: str, *, is_flat: bool) -> bool:
        """Whether a sub-agent's stem does not tell it from others.

        Of one beside its parent's log only another such one takes that away; of one below it, any other does.
        """
        with self._lock:
            flat = self._flat[stem]
            return flat > 1 if is_flat else flat + self._nested[stem] > 1

    def _forget(self, path: str) -> None:
        listed = self._known.pop(path, None)
        if listed is not None:
            self._stems(path).subtract(_subagents(listed[1]))

    def _stems(self, path: str) -> Counter[str]:
        return self._flat if is_project(path) else self._nested


def _subagents(contents: Contents) -> list[str]:
    stems = (name.removesuffix(_LOG) for name in contents.logs)
    return [stem for stem in stems if is_subagent_stem(stem)]
