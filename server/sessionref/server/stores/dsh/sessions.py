"""Finding the logs of a home: project folders, session folders, and the one log of each that counts.

Everything below the root is opened through its folder (contract section 4, Reading DSH logs).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.printable import printable
from sessionref.server.store import CheckCancelled
from sessionref.server.stores.dsh.header import LogHeader, parse_header
from sessionref.server.stores.dsh.layout import LogName, choose_log, project_key, session_segment
from sessionref.server.stores.file_states import is_settled
from sessionref.server.stores.folders import Folder, OpenFile
from sessionref.server.stores.frames import LogReader
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.position import LogPosition, continues, position_after
from sessionref.server.stores.problems import Unreadable, corrupt, from_os_error

__all__ = (
    "KnownLog",
    "OpenLog",
    "Place",
    "encode_stamp",
    "has_stamp",
    "is_session_at",
    "open_log",
    "places_of",
    "project_folders",
    "session_names",
    "shown_key",
)


_STAMPS: Final = msgspec.msgpack.Decoder(tuple[int, str, int, int, int, bool])


class Place(NamedTuple):
    """Where a session is: the names of its two folders below the root."""

    project: str
    segment: str

    def __str__(self) -> str:
        return shown_key(f"{self.project}/{self.segment}")


class KnownLog(NamedTuple):
    """A log that was read before: where that ended, and the header that it had."""

    position: LogPosition
    header: LogHeader


class OpenLog(NamedTuple):
    """A log whose header was read and checked, and the reader that stands behind it.

    `is_continued` is whether the reader stands where a known log ended. `stamp` tells this state of it from others.
    """

    header: LogHeader
    reader: LogReader
    blocks: Iterator[bytes]
    updated_at: int
    is_continued: bool
    name: LogName
    file: OpenFile
    stamp: bytes
    began_at: LogPosition | None

    def position(self) -> LogPosition | None:
        """Where another pass can go on, once all blocks were taken; None if it must begin anew."""
        return position_after(self.reader, self.began_at, self.name.name, self.file)


def shown_key(key: str) -> str:
    """Folder names as they can be logged, whatever bytes they are made of."""
    return printable(key)


def project_folders(root: Folder) -> Iterator[tuple[str, os.stat_result]]:
    """The project folders with what they are; links are not followed. Raises OSError."""
    for name in root.names():
        try:
            facts = root.facts(name)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(facts.st_mode):
            yield name, facts


def session_names(project: Folder) -> list[str]:
    """What may be a session of a project: folders, and links, which are refused when read. Raises OSError."""
    return project.folders_and_links()


def places_of(root: Folder, segment: str, check: CheckCancelled) -> list[Place]:
    """Every place that has a session with this folder name.

    Raises OSError, and Unreadable if none is found but not every project could be looked at.
    """
    places: list[Place] = []
    problem: Unreadable | None = None
    for name, _ in project_folders(root):
        check()
        try:
            with root.folder(name) as project:
                if is_session(project, segment):
                    places.append(Place(name, segment))
        except OSError as error:
            problem = from_os_error(error)
        except Unreadable as error:
            problem = error
    if not places and problem is not None and problem.reason is not ReadFailedReason.NOT_FOUND:
        raise problem
    return places


def is_session(project: Folder, segment: str) -> bool:
    """Whether the name is a session, readable or not: a folder with a log, a link, or a folder that is closed to us."""
    if not _has_kind(project, segment, stat.S_IFDIR, stat.S_IFLNK):
        return False
    try:
        with project.folder(segment) as folder:
            return choose_log(folder.names()) is not None
    except FileNotFoundError:
        return False
    except (OSError, Unreadable):
        return True


def is_session_at(root: Folder, place: Place) -> bool:
    """Whether a session that could not be read is still there."""
    try:
        with root.folder(place.project) as project:
            return is_session(project, place.segment)
    except OSError:
        return False


@contextmanager
def open_log(
    root: Folder, place: Place, limits: ReadingLimits, check: CheckCancelled, known: KnownLog | None = None
) -> Generator[OpenLog | None]:
    """Open the log at a place, where possible behind what is known of it; None for a folder without one.

    Raises OSError, Unreadable, and what `check` raises.
    """
    with root.folder(place.project) as project, project.folder(place.segment) as folder:
        changed = folder.own_facts().st_mtime_ns
        name = choose_log(folder.names())
        if name is None:
            yield None
            return
        with folder.file(name.name) as file:
            tail = None if known is None else continues(known.position, name.name, file)
            began_at = None if known is None or tail is None else known.position
            reader = LogReader(
                file.descriptor,
                file.facts.st_size,
                compressed=name.compressed,
                limits=limits,
                check=check,
                start=0 if began_at is None else began_at.offset,
                tail=tail or b"",
            )
            blocks = reader.blocks()
            is_continued = began_at is not None
            header = known.header if known is not None and is_continued else _header(next(blocks, b""), name, limits)
            if not _lies_at(root, folder, place, header):
                raise corrupt()
            yield OpenLog(
                header,
                reader,
                blocks,
                _milliseconds(file),
                is_continued,
                name,
                file,
                encode_stamp(changed, name.name, file.facts),
                began_at,
            )


def encode_stamp(folder_changed: int, name: str, facts: os.stat_result) -> bytes:
    """What changes whenever a session's log may have: a new generation, another file, more or other bytes."""
    # A change within the grain of the file system's clock leaves no trace in it: times so fresh prove nothing.
    is_fresh = not is_settled(max(folder_changed, facts.st_mtime_ns))
    try:
        return msgspec.msgpack.encode((folder_changed, name, facts.st_ino, facts.st_size, facts.st_mtime_ns, is_fresh))
    except OverflowError:
        # Some file systems take times that are no 64 bits of nanoseconds: such a log is looked at each time.
        return b""


def has_stamp(root: Folder, key: str, stamp: bytes) -> bool:
    """Whether the log under a key still has a stamp; two looks, and nothing is opened."""
    try:
        known = _STAMPS.decode(stamp)
        if root.facts(key).st_mtime_ns != known[0]:
            return False
        log = root.facts(f"{key}/{known[1]}")
    except (OSError, ValueError):
        return False
    return (log.st_ino, log.st_size, log.st_mtime_ns, False) == known[2:]


def _header(line: bytes, name: LogName, limits: ReadingLimits) -> LogHeader:
    header = parse_header(line, limits)
    if header.version != name.version:
        raise corrupt()
    return header


def _lies_at(root: Folder, folder: Folder, place: Place, header: LogHeader) -> bool:
    """Whether the header names the very folder that its log lies in."""
    named = Place(project_key(header.cwd), session_segment(header.session_id))
    if named == place:
        return True
    if str(named).lower() != str(place).lower():
        return False
    # A file system that ignores case may know one folder by both names.
    try:
        with root.folder(named.project) as project, project.folder(named.segment) as same:
            return os.path.samestat(same.own_facts(), folder.own_facts())
    except (OSError, Unreadable):
        return False


def _has_kind(folder: Folder, name: str, *kinds: int) -> bool:
    try:
        return stat.S_IFMT(folder.facts(name).st_mode) in kinds
    except FileNotFoundError:
        return False


def _milliseconds(file: OpenFile) -> int:
    return file.facts.st_mtime_ns // 1_000_000
