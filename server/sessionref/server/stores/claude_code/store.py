"""The store of Claude Code's sessions."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from sessionref.server.store import CheckCancelled, Lesson
from sessionref.server.stores.claude_code.conversation import ClaudeConversation
from sessionref.server.stores.claude_code.labels import ClaudeLabels, Draft
from sessionref.server.stores.claude_code.layout import PROJECTS, SUBAGENTS, is_project, is_subagent_stem, place_of
from sessionref.server.stores.claude_code.listing import NOTHING, Contents, Listings
from sessionref.server.stores.claude_code.records import ClaudeRecord
from sessionref.server.stores.claude_code.summaries import Summaries
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.folds import Log
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.logs import LogStore
from sessionref.server.stores.problems import Unreadable, failures_of

__all__ = ("ClaudeCodeStore",)

_LINKED_LEVELS: Final = 2
"""The folder of projects and those in it may be links, as people have them; nothing below them may."""

_SHARED: Final = b"shared"

_SUMMARISED: Final = b"\0summary\0"
"""Stands in a stamp before the log from which the session has its title, and the state of that."""


class ClaudeCodeStore(LogStore[ClaudeRecord]):
    """The sessions below one configuration folder: a folder for each project, and in it one for each session's agents.

    A sub-agent is known by its stem, and by its parent's id and its stem where others have that stem.
    """

    kind = "claude-code"
    watched = (PROJECTS,)

    def __init__(self, home: Path, *, limits: ReadingLimits | None = None) -> None:
        super().__init__(home, ClaudeRecord, limits=limits)
        self._listings = Listings()
        self._summaries = Summaries(self.decoder)

    def group_folders(self, home: Folder) -> Iterator[str]:
        """The folders of projects, each once whatever leads to it, and those of their sessions' sub-agents."""
        for project in self._projects(home):
            yield project
            try:
                contents = self._contents(home, project)
            except (OSError, Unreadable):
                # It shows itself when it is opened for its files.
                continue
            for session in contents.folders:
                yield f"{project}/{session}/{SUBAGENTS}"

    def groups(self) -> dict[str, int]:
        """The folders that may hold logs, with the time of their last change in ns.

        Raises SessionReferenceError READ_FAILED if the home cannot be read.
        """
        changed = super().groups()
        new = [group for group, time in changed.items() if self._listings.known(group, time) is None]
        if new:
            with failures_of(None), self.open_home() as home:
                for group in new:
                    try:
                        self._contents(home, group)
                    except (OSError, Unreadable):
                        continue
        self._listings.keep_only(changed)
        return changed

    def log_at(self, key: str) -> Log | None:
        """The session that a path is."""
        place = place_of(key)
        if place is None:
            return None
        is_shared = place.is_subagent and self._listings.is_shared(place.stem, is_flat=place.is_flat)
        native_id = f"{place.owner}/{place.stem}" if is_shared else place.stem
        return Log(key, native_id, is_subagent=place.is_subagent)

    def new_labels(self) -> ClaudeLabels:
        """A fold before the first record."""
        return ClaudeLabels()

    def new_conversation(self, log: Log) -> ClaudeConversation:
        """A fold before the first record."""
        return ClaudeConversation(is_subagent=log.is_subagent)

    def beside(self, home: Folder, log: Log) -> bytes:
        """Whether another sub-agent has the stem, and this one's id so is a longer one."""
        return _SHARED if log.is_subagent and "/" in log.native_id else b""

    def changed(self, stamps: Mapping[str, bytes], check: CheckCancelled) -> Iterator[str]:
        """The keys whose rows no longer have these stamps, or whose title another log may have brought."""
        own = {key: stamp.partition(_SUMMARISED)[0] for key, stamp in stamps.items()}
        found = dict.fromkeys(super().changed(own, check)) | dict.fromkeys(self._summaries.news(stamps.keys()))
        yield from found
        yield from (key for key in stamps if key not in found and not self._has_its_summary(key, stamps[key]))

    def learn(self, key: str, known: Lesson | None, check: CheckCancelled, *, with_title: bool) -> Lesson | None:
        """Learn a session's row, from where the known lesson ended if it still holds; None if there is no session.

        Raises SessionReferenceError READ_FAILED with the reason for which it cannot be listed.
        """
        lesson = super().learn(key, known, check, with_title=with_title)
        if lesson is None or not isinstance(lesson.header, Draft):
            return lesson
        if not lesson.has_title:
            return msgspec.structs.replace(lesson, header=lesson.header.row(None))
        title, state = self._summary_for(key, lesson.header, check)
        if not lesson.header.is_session:
            return None
        return msgspec.structs.replace(lesson, header=lesson.header.row(title), stamp=lesson.stamp + state)

    def find(self, home: Folder, native_id: str, check: CheckCancelled) -> list[Log]:
        """The logs that are a session by their names, and not empty; a sub-agent also by its parent's id and its stem.

        Raises OSError or Unreadable if there is none, but not every folder could be looked into.
        """
        owner, slash, stem = native_id.rpartition("/")
        is_subagent = is_subagent_stem(stem)
        if slash and not (owner and is_subagent):
            return []
        flat: list[Log] = []
        nested: list[Log] = []
        problem: OSError | Unreadable | None = None
        for group in self.group_folders(home):
            check()
            is_flat = is_project(group)
            if not is_flat and not (is_subagent and (not owner or group.split("/")[-2] == owner)):
                continue
            try:
                if f"{stem}.jsonl" not in self._contents(home, group).logs:
                    continue
                log = self.log_at(f"{group}/{stem}.jsonl")
                if log is not None and self.has_content(home, log):
                    (flat if is_flat else nested).append(log)
            except FileNotFoundError:
                continue
            except (OSError, Unreadable) as error:
                problem = error
        if owner:
            flat = [log for log in flat if owner in self._owners(home, log, check)]
        # One beside its parent's log has the stem alone as its id; one below it has its parent's id, too.
        found = (nested or flat) if owner else (flat or nested)
        if not found and problem is not None:
            raise problem
        return found

    def logs_in(self, home: Folder, group: str) -> list[Log]:
        """The logs in a folder, by their names. Raises OSError, Unreadable."""
        paths = (f"{group}/{name}" for name in self._contents(home, group).logs)
        return [log for path in paths if (log := self.log_at(path)) is not None]

    @contextmanager
    def open_folder(self, home: Folder, path: str) -> Generator[Folder]:
        """Open a folder below the home, part by part.

        Raises OSError, Unreadable (outside-root) for a link below those that may be some.
        """
        with ExitStack() as stack:
            folder = home
            for level, name in enumerate(path.split("/")):
                folder = stack.enter_context(folder.folder(name, follow_link=level < _LINKED_LEVELS))
            yield folder

    def _projects(self, home: Folder) -> list[str]:
        """The folders of projects, each once: under its own name rather than that of a link to it. Raises OSError."""
        try:
            with self.open_folder(home, PROJECTS) as projects:
                names = projects.folders_and_links()
        except FileNotFoundError:
            return []
        paths = [f"{PROJECTS}/{name}" for name in names]
        are_links = {path: _is_link(home, path) for path in paths}
        found: list[str] = []
        passed: set[tuple[int, int]] = set()
        for path in sorted(paths, key=lambda path: are_links[path]):
            try:
                facts = home.facts(f"{path}/.")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                # One that is closed to us shows itself when it is opened for its files.
                found.append(path)
                continue
            if (facts.st_dev, facts.st_ino) not in passed:
                passed.add((facts.st_dev, facts.st_ino))
                found.append(path)
        return found

    def _contents(self, home: Folder, group: str) -> Contents:
        """What lies in a folder; nothing where there is none. Raises OSError, Unreadable."""
        try:
            changed_ns = home.facts(f"{group}/.").st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return NOTHING
        known = self._listings.known(group, changed_ns)
        if known is not None:
            return known
        with self.open_folder(home, group) as folder:
            return self._listings.take(group, changed_ns, folder)

    def _summary_for(self, key: str, draft: Draft, check: CheckCancelled) -> tuple[str | None, bytes]:
        """The summary that is a session's title where it has no better one, and what the log that holds it is now.

        Raises what `check` raises.
        """
        place = place_of(key)
        if place is None or place.is_subagent:
            return None, b""
        project, _, name = key.rpartition("/")
        if draft.is_named and not draft.has_summaries and not self._summaries.has_index(project):
            return None, b""
        try:
            with self.open_home() as home, self.open_folder(home, project) as folder:
                self._summaries.load(project, self._contents(home, project).logs, folder, check)
                self._summaries.learn(project, name, folder)
                summary = None if draft.is_named else self._summaries.title_of(project, name)
                if summary is None:
                    return None, b""
                if summary.log == name:
                    return summary.title, b""
                source = b"\0".join((os.fsencode(summary.log), _state(folder.facts(summary.log))))
                return summary.title, _SUMMARISED + source
        except (OSError, Unreadable):
            return None, b""

    def _has_its_summary(self, key: str, stamp: bytes) -> bool:
        """Whether the log from which a session has its title is as it was; true where that is its own."""
        _, is_summarised, source = stamp.partition(_SUMMARISED)
        if not is_summarised:
            return True
        name, _, state = source.partition(b"\0")
        try:
            with self.open_home() as home:
                return _state(home.facts(f"{key.rpartition('/')[0]}/{os.fsdecode(name)}")) == state
        except (OSError, Unreadable):
            return False

    def _owners(self, home: Folder, log: Log, check: CheckCancelled) -> set[str | None]:
        """What may stand before the stem of a sub-agent beside its parent's log: the id in it, or its folder."""
        labels = ClaudeLabels()
        place = place_of(log.key)
        found = {None if place is None else place.owner}
        try:
            with self.open_log(home, log, check) as reading:
                for record in self.records_in(reading):
                    labels.feed(record)
                    if labels.owner is not None:
                        return found | {labels.owner}
        except (OSError, Unreadable):
            return found
        return found


def _is_link(home: Folder, path: str) -> bool:
    try:
        return stat.S_ISLNK(home.facts(path).st_mode)
    except OSError:
        return False


def _state(facts: os.stat_result) -> bytes:
    """The state of a log that is learnt itself, where what leaves no trace in this one is seen."""
    return f"{facts.st_ino} {facts.st_size} {facts.st_mtime_ns}".encode()
