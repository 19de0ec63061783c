"""Titles that one session's log holds for another: records of summaries, by the uuid that they end at.

Claude Code 1.x wrote the summary of a session wherever it was writing just then. So a project has an index of the
ends of its logs, made when a session first needs it: what lies further inside of a long log is not found.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import msgspec

from sessionref.server.store import CheckCancelled
from sessionref.server.stores.agent import first_line
from sessionref.server.stores.claude_code.layout import is_subagent_stem
from sessionref.server.stores.claude_code.records import ClaudeRecord
from sessionref.server.stores.file_states import file_state
from sessionref.server.stores.folders import Folder, OpenFile
from sessionref.server.stores.problems import Unreadable
from sessionref.server.stores.records import RecordDecoder

__all__ = ("Summaries", "Summary")

END_BYTES: Final = 64 * 1024
"""What is read of each end of a log: the SDK of the agent looks as far for titles."""

CHECKED_LOGS: Final = 8
"""Logs between two looks at the cancellation: the ends of so many are a mebibyte."""

MAX_OWN: Final = 8
"""How many of a log's own summaries, from the last on, may be the one that no other session has."""

_UUID: Final = re.compile(rb'"uuid"\s*:\s*"([^"\\]{1,100})"')
_LEAF: Final = b'"leafUuid"'


class Summary(NamedTuple):
    """A summary, and the name of the log that holds it."""

    title: str
    log: str


class Ends(msgspec.Struct, frozen=True, gc=False):
    """What the ends of a log hold: hashes of uuids in their order, and summaries by the hash of their leaf's uuid."""

    state: bytes
    uuids: array[int]
    summaries: dict[int, str]


class Project(msgspec.Struct, gc=False):
    """What the logs of a project hold, by their names, and all their summaries."""

    names: tuple[str, ...]
    logs: dict[str, Ends]
    titles: dict[int, Summary]


class Summaries:
    """The index of each project that needed one, by the logs' names. Thread-safe."""

    def __init__(self, decoder: RecordDecoder[ClaudeRecord]) -> None:
        self._decoder = decoder
        self._lock = threading.Lock()
        self._projects: dict[str, Project] = {}
        self._news: set[str] = set()

    def has_index(self, project: str) -> bool:
        """Whether a project has needed an index."""
        with self._lock:
            return project in self._projects

    def learn(self, project: str, name: str, folder: Folder) -> None:
        """Take up what a log of a project with an index holds by now."""
        with self._lock:
            known = self._projects[project].logs.get(name)
        ends = self._ends(folder, name, known)
        with self._lock:
            if ends is not None and ends is not known:
                index = self._projects[project]
                before, index.logs[name] = index.titles, ends
                if known is None or (known.uuids, known.summaries) != (ends.uuids, ends.summaries):
                    is_only_more = known is None or not known.summaries
                    index.titles = before | _titles({name: ends}) if is_only_more else _titles(index.logs)
                    self._take_news(project, dict(before.items() ^ index.titles.items()).keys())
            self._news.discard(f"{project}/{name}")

    def load(self, project: str, names: tuple[str, ...], folder: Folder, check: CheckCancelled) -> None:
        """Make the index of a project that has these logs, or forget those it has no more. Raises what `check` does."""
        if self._keep_only(project, names):
            return
        logs: dict[str, Ends] = {}
        for at, name in enumerate(names, 1):
            if is_subagent_stem(name.removesuffix(".jsonl")):
                continue
            if at % CHECKED_LOGS == 0:
                check()
            if (ends := self._ends(folder, name, None)) is not None:
                logs[name] = ends
        index = Project(names, logs, _titles(logs))
        with self._lock:
            if self._projects.setdefault(project, index) is index:
                # What other sessions were told by an earlier index may hold no more.
                self._take_news(project, index.titles.keys())

    def title_of(self, project: str, name: str) -> Summary | None:
        """The summary of a session: of those that end at one of its uuids that of the latest, else one of its own.

        Of its own that is one which ends at nobody's uuid.
        """
        with self._lock:
            index = self._projects[project]
            own = index.logs.get(name)
            if own is None or not index.titles:
                return None
            for uuid in reversed(own.uuids):
                if uuid in index.titles:
                    return index.titles[uuid]
            for leaf in list(own.summaries)[: -MAX_OWN - 1 : -1]:
                if not any(leaf in ends.uuids for ends in index.logs.values()):
                    return Summary(own.summaries[leaf], name)
            return None

    def news(self, keys: Collection[str]) -> list[str]:
        """Those of the keys whose session may have got another summary since it was learnt."""
        with self._lock:
            return [key for key in self._news if key in keys]

    def _keep_only(self, project: str, names: tuple[str, ...]) -> bool:
        """Forget the logs of a project that are gone; false if it has no index."""
        with self._lock:
            index = self._projects.get(project)
            if index is None:
                return False
            # As long as nothing changes these are the same, so that the comparison takes no time.
            if index.names != names:
                index.names = names
                gone = [index.logs.pop(name) for name in index.logs.keys() - set(names)]
                if any(ends.summaries for ends in gone):
                    before, index.titles = index.titles, _titles(index.logs)
                    self._take_news(project, dict(before.items() ^ index.titles.items()).keys())
            return True

    def _take_news(self, project: str, leaves: Collection[int]) -> None:
        if leaves:
            wanted = frozenset(leaves)
            for name, ends in self._projects[project].logs.items():
                if not wanted.isdisjoint(ends.uuids):
                    self._news.add(f"{project}/{name}")

    def _ends(self, folder: Folder, name: str, known: Ends | None) -> Ends | None:
        """What the ends of a log hold; None for one that cannot be read, which is said where it is learnt."""
        try:
            if known is not None and known.state == file_state(folder.facts(name)):
                return known
            with folder.file(name) as file:
                state = file_state(file.facts)
                parts = list(_end_parts(file))
        except (OSError, Unreadable):
            return None
        uuids = array("q", (hash(uuid) for part in parts for uuid in _UUID.findall(part)))
        return Ends(state, uuids, {leaf: title for part in parts for leaf, title in self._summaries(part)})

    def _summaries(self, part: bytes) -> Iterator[tuple[int, str]]:
        if _LEAF not in part:
            return
        for line in part.split(b"\n"):
            if _LEAF not in line:
                continue
            try:
                record = self._decoder.decode(line)
            except Unreadable:
                continue
            if record is None or record.type != "summary" or not record.leaf_uuid:
                continue
            title = first_line(record.summary or "")
            if title is not None:
                yield hash(record.leaf_uuid.encode("utf-8", "surrogatepass")), title


def _titles(logs: dict[str, Ends]) -> dict[int, Summary]:
    return {leaf: Summary(title, name) for name, ends in logs.items() for leaf, title in ends.summaries.items()}


def _end_parts(file: OpenFile) -> Iterator[bytes]:
    size = file.facts.st_size
    if size <= 2 * END_BYTES:
        yield file.part(0, size)
    else:
        yield file.part(0, END_BYTES)
        yield file.part(size - END_BYTES, END_BYTES)
