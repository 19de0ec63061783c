"""Finding the logs of a home: project folders, session folders, and the one log of each that counts.

Everything below the root is opened through its folder (contract section 4, Reading DSH logs).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CheckCancelled
from sessionref.server.stores.dsh.folders import Folder, OpenFile
from sessionref.server.stores.dsh.frames import LogReader
from sessionref.server.stores.dsh.header import LogHeader, parse_header
from sessionref.server.stores.dsh.layout import LogName, choose_log, project_key, session_segment
from sessionref.server.stores.dsh.limits import DshLimits
from sessionref.server.stores.dsh.problems import Unreadable, corrupt, from_os_error

__all__ = ("OpenLog", "Place", "open_log", "places_of", "project_names", "session_names")


class Place(NamedTuple):
    """Where a session is: the names of its two folders below the root."""

    project: str
    segment: str

    def __str__(self) -> str:
        return f"{self.project}/{self.segment}".encode("utf-8", "backslashreplace").decode()


class OpenLog(NamedTuple):
    """A log whose header was read and checked, and the reader that stands behind it."""

    header: LogHeader
    reader: LogReader
    blocks: Iterator[bytes]
    updated_at: int


def project_names(root: Folder) -> list[str]:
    """The project folders; links are not followed. Raises OSError."""
    return [name for name in root.names() if _has_kind(root, name, stat.S_IFDIR)]


def session_names(project: Folder) -> list[str]:
    """What may be a session of a project: folders, and links, which are refused when read. Raises OSError."""
    return [name for name in project.names() if _has_kind(project, name, stat.S_IFDIR, stat.S_IFLNK)]


def places_of(root: Folder, segment: str, check: CheckCancelled) -> list[Place]:
    """Every place that has a session with this folder name.

    Raises OSError, and Unreadable if none is found but not every project could be looked at.
    """
    places: list[Place] = []
    problem: Unreadable | None = None
    for name in project_names(root):
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


@contextmanager
def open_log(root: Folder, place: Place, limits: DshLimits, check: CheckCancelled) -> Generator[OpenLog | None]:
    """Open the log at a place; None for a folder without one. Raises OSError, Unreadable, and what `check` raises."""
    with root.folder(place.project) as project, project.folder(place.segment) as folder:
        name = choose_log(folder.names())
        if name is None:
            yield None
            return
        with folder.file(name.name) as file:
            reader = LogReader(
                file.descriptor, file.facts.st_size, compressed=name.compressed, limits=limits, check=check
            )
            blocks = reader.blocks()
            header = _header(next(blocks, b""), name, limits)
            if not _lies_at(root, folder, place, header):
                raise corrupt()
            yield OpenLog(header, reader, blocks, _milliseconds(file))


def _header(line: bytes, name: LogName, limits: DshLimits) -> LogHeader:
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
