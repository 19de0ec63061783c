"""Whatever becomes of logs, what is known of them from before comes to the same as a full read (issue 4)."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from catalogue_doubles import (
    bring_up_to_date,
    full_view,
    index_view,
    open_database,
    outcome_of,
)
from dsh_fixtures import (
    DshHome,
    Event,
    assistant,
    checkpoint,
    descriptor,
    event,
    header_line,
    plugin_message,
    step_end,
    step_start,
    title,
    tool_call,
    tool_result,
    turn_end,
    turn_start,
    user,
    zstd_frame,
)
from resolver_doubles import never_cancelled
from sessionref.server.catalogue import index as index_module
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.sources import SessionSources
from sessionref.server.store import Capture
from sessionref.server.stores.dsh import DshStore, ReadingLimits, project_key, session_segment

IDS = ["one", "two", "thr\u00ebe", "x/y"]
PROJECTS = ["/a", "/b", None]
CLUTTER = ["folder", "link", "file"]
LIMITS = [
    ReadingLimits(whole_bytes=0, saved_from_bytes=0),
    ReadingLimits(whole_bytes=0, saved_from_bytes=0, piece_bytes=700, compressed_bytes=300),
    ReadingLimits(whole_bytes=3000, saved_from_bytes=1500, piece_bytes=5000),
]
PADDING = "padding " * 40  # Makes a few events longer than the bytes that are checked before a position.

texts = st.sampled_from(["", "a", "b" * 50, "ünï\u2028", "<tag>", PADDING * 3])
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(user, texts),
    st.builds(user, texts),
    st.builds(assistant, texts),
    st.builds(assistant, texts, st.just(tool_call("c1")), st.just(tool_call("c2"))),
    st.builds(tool_result, texts, call_id=st.just("c1"), version=st.just(4)),
    st.builds(title, st.sampled_from(["First", "Second", "Törd", "", "x" * 100, 5, "half \ud800"])),
    st.builds(descriptor, st.sampled_from(["researcher", "writer", ""])),
    st.sampled_from([turn_start(), turn_end(), step_start(), step_end(), plugin_message("hidden", 4)]),
    st.sampled_from([event("plugin/made-up"), event("plugin/harmless", ignorable=True)]),
    st.sampled_from([event("tool/call", {"output": PADDING * 20})]),
)
batches = st.lists(events, min_size=1, max_size=5)


@dataclass
class Log:
    """One log as the writer knows it."""

    path: Path
    version: int
    seq: int = 0
    surface: list[int] = field(default_factory=list[int])
    boundaries: list[tuple[int, int, list[int]]] = field(default_factory=list[tuple[int, int, list[int]]])
    """Where the log could end: its size, the next position and the surface there."""
    rest: bytes = b""
    """What is missing of an unfinished write."""

    @property
    def is_compressed(self) -> bool:
        return self.path.suffix == ".zstd"

    def encode(self, added: list[Event]) -> bytes:
        """The next lines, as one write."""
        lines: list[bytes] = []
        for one in added:
            lines.append(one.line(self.seq, self.version))
            if one.replaces is not None:
                first, last = map(self.surface.index, one.replaces)
                self.surface[first : last + 1] = [self.seq]
            elif one.surface:
                self.surface.append(self.seq)
            self.seq += 1
        content = b"".join(lines)
        return zstd_frame(content) if self.is_compressed else content

    def write(self, content: bytes, cut: int = 0) -> None:
        """Write at the end, all or all but the last bytes."""
        with self.path.open("ab") as file:
            file.write(content[: len(content) - cut])
        self.rest = content[len(content) - cut :]
        if not cut:
            self.mark()

    def mark(self) -> None:
        """A write is finished."""
        self.boundaries.append((self.path.stat().st_size, self.seq, [*self.surface]))

    def truncate(self, boundary: int) -> None:
        """Go back to where a write was finished."""
        size, self.seq, surface = self.boundaries[boundary]
        self.surface = [*surface]
        self.rest = b""
        del self.boundaries[boundary + 1 :]
        os.truncate(self.path, size)


class Histories(RuleBasedStateMachine):
    """Sessions of one home, whatever happens to them, and all who know something of them from before."""

    parent: Path  # Where each run has a folder of its own.

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.parent))
        self.home = DshHome(self.folder / "home")
        self.logs: dict[Path, Log] = {}
        self.states: dict[str, bytes] = {}

    @initialize(limits=st.sampled_from(LIMITS))
    def begin(self, limits: ReadingLimits) -> None:
        self.store = DshStore(self.home.path, limits=limits)
        self.database = open_database(self.folder)
        self.others = open_database(self.folder)
        self.sources = SessionSources([self.store], self.database)
        self.indexes = [
            SessionIndex(self.store, None),
            SessionIndex(self.store, self.database),
            SessionIndex(self.store, self.others),
        ]

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.close()
            self.others.close()
        shutil.rmtree(self.folder)

    def make(
        self, session_id: str, cwd: str | None, version: int, compressed: bool, first: list[Event], created_at: int
    ) -> None:
        folder = self.home.sessions / project_key(cwd) / session_segment(session_id)
        if folder.is_symlink() or folder.is_file():
            return
        path = self.home.write(session_id, version=version, cwd=cwd, compressed=compressed, created_at=created_at)
        log = Log(path, version)
        log.mark()
        log.write(log.encode(first))
        self.logs[path] = log

    def chosen(self, choice: int) -> Log:
        return list(self.logs.values())[choice % len(self.logs)]

    @rule(
        session_id=st.sampled_from(IDS),
        cwd=st.sampled_from(PROJECTS),
        version=st.sampled_from([3, 4]),
        compressed=st.booleans(),
        first=batches,
        created_at=st.integers(1, 3),
    )
    def create(
        self, session_id: str, cwd: str | None, version: int, compressed: bool, first: list[Event], created_at: int
    ) -> None:
        """A session comes; it may be another generation of one that is there, its other encoding, or its double."""
        self.make(session_id, cwd, version, compressed, first, created_at)

    @precondition(lambda self: self.logs)
    @rule(choice=st.integers(0, 9), writes=st.lists(batches, min_size=1, max_size=3))
    def append(self, choice: int, writes: list[list[Event]]) -> None:
        """A log grows by several writes, the first of which may finish what was begun."""
        log = self.chosen(choice)
        if log.rest:
            log.write(log.rest)
        for added in writes:
            log.write(log.encode(added))

    @precondition(lambda self: self.logs)
    @rule(choice=st.integers(0, 9), added=batches, cut=st.integers(1, 400), again=st.booleans())
    def tear(self, choice: int, added: list[Event], cut: int, again: bool) -> None:
        """A write is not finished yet; perhaps it goes on a little in a second step."""
        log = self.chosen(choice)
        if log.rest:
            log.write(log.rest)
        content = log.encode(added)
        log.write(content, min(cut, len(content) - 1))
        if again and len(log.rest) > 1:
            log.write(log.rest, 1)

    @precondition(lambda self: self.logs)
    @rule(choice=st.integers(0, 9))
    def complete(self, choice: int) -> None:
        """What was begun is finished."""
        log = self.chosen(choice)
        log.write(log.rest)

    @precondition(lambda self: self.logs)
    @rule(choice=st.integers(0, 9), back=st.integers(1, 4), added=st.none() | batches)
    def truncate(self, choice: int, back: int, added: list[Event] | None) -> None:
        """A writer takes back what was torn, or even more, and may go on from there."""
        log = self.chosen(choice)
        log.truncate(max(0, len(log.boundaries) - back))
        if added is not None:
            log.write(log.encode(added))

    @precondition(lambda self: self.logs)
    @rule(choice=st.integers(0, 9), first=st.integers(0, 9), count=st.integers(1, 5), text=texts)
    def compact(self, choice: int, first: int, count: int, text: str) -> None:
        """A checkpoint takes the place of some of the surface."""
        log = self.chosen(choice)
        if not log.surface or log.rest:
            return
        nodes = log.surface[first % len(log.surface) :][:count]
        compacted = checkpoint(text, version=log.version).replacing(nodes[0], nodes[-1], sorted(nodes))
        log.write(log.encode([compacted]))

    @precondition(lambda self: self.logs)
    @rule(choice=st.integers(0, 9), added=batches, created_at=st.integers(1, 3), keep=st.booleans())
    def exchange(self, choice: int, added: list[Event], created_at: int, keep: bool) -> None:
        """Another file takes the log's name: with the same beginning and more, or something else."""
        log = self.chosen(choice)
        other = log.path.with_name("other.tmp")
        if keep:
            shutil.copyfile(log.path, other)
            os.replace(other, log.path)
            log.write(log.rest)
        else:
            first = log.path.read_bytes()[: log.boundaries[0][0]]
            if created_at == 1:
                first = b"no header\n"
            other.write_bytes(first)
            os.replace(other, log.path)
            log.boundaries, log.seq, log.surface = [], 0, []
            log.mark()
        log.write(log.encode(added))

    @precondition(lambda self: self.logs)
    @rule(choice=st.integers(0, 9), added=batches, newest=st.booleans())
    def migrate(self, choice: int, added: list[Event], newest: bool) -> None:
        """A file of a newer generation appears beside the log."""
        log = self.chosen(choice)
        if newest:
            log.path.with_name("session.v9.jsonl").write_bytes(b"{}\n")
            return
        suffix = ".zstd" if log.is_compressed else ""
        path = log.path.with_name(f"session.v4.jsonl{suffix}")
        if path.exists():
            return
        header = log.path.read_bytes()[: log.boundaries[0][0]]
        line = header_line("one", 4) if log.is_compressed else header.replace(b'"version":3', b'"version":4')
        path.write_bytes(zstd_frame(line) if log.is_compressed else line)
        self.logs[path] = Log(path, 4)
        self.logs[path].mark()
        self.logs[path].write(self.logs[path].encode(added))

    @precondition(lambda self: self.logs)
    @rule(choice=st.integers(0, 9), line=st.sampled_from([b"{}\n", b"\n", b"\xff\xfe\n", b'{"type":"turn/end"}\n']))
    def damage(self, choice: int, line: bytes) -> None:
        """A line that is no event; what is written behind it is skipped, or makes the log corrupt."""
        log = self.chosen(choice)
        log.write(zstd_frame(line) if log.is_compressed else line)

    @precondition(lambda self: self.logs)
    @rule(choice=st.integers(0, 9), whole=st.booleans())
    def remove(self, choice: int, whole: bool) -> None:
        """A session goes, or its log alone."""
        log = self.chosen(choice)
        if whole:
            shutil.rmtree(log.path.parent)
        else:
            log.path.unlink()
        self.forget_lost()

    @rule(cwd=st.sampled_from(PROJECTS))
    def remove_project(self, cwd: str | None) -> None:
        """A whole project goes."""
        shutil.rmtree(self.home.sessions / project_key(cwd), ignore_errors=True)
        self.forget_lost()

    @precondition(lambda self: self.logs)
    @rule(choice=st.integers(0, 9), cwd=st.sampled_from(PROJECTS), copy=st.booleans())
    def move(self, choice: int, cwd: str | None, copy: bool) -> None:
        """A folder moves to another project, or is copied there; its header says so or not."""
        source = self.chosen(choice).path.parent
        target = self.home.sessions / project_key(cwd) / source.name
        if target.exists():
            return
        target.parent.mkdir(exist_ok=True)
        if copy:
            shutil.copytree(source, target)
            return
        os.rename(source, target)
        for path in [path for path in self.logs if path.parent == source]:
            log = self.logs.pop(path)
            log.path = target / path.name
            self.logs[log.path] = log

    @precondition(lambda self: self.logs)
    @rule(choice=st.integers(0, 9), seconds=st.integers(-5, 5))
    def touch(self, choice: int, seconds: int) -> None:
        """A log has another time and is the same."""
        path = self.chosen(choice).path
        then = path.stat().st_mtime_ns + seconds * 10**9
        os.utime(path, ns=(then, then))

    @rule(
        name=st.sampled_from(IDS[:2]), cwd=st.sampled_from(PROJECTS), what=st.sampled_from(["folder", "link", "file"])
    )
    def clutter(self, name: str, cwd: str | None, what: str) -> None:
        """Something else has a session's name: a folder that has no log yet, a link, a file."""
        path = self.home.sessions / project_key(cwd) / name
        if path.exists() or path.is_symlink():
            return
        path.parent.mkdir(exist_ok=True)
        if what == "folder":
            path.mkdir()
        elif what == "link":
            path.symlink_to(self.folder)
        else:
            path.write_bytes(b"")

    @rule(name=st.sampled_from(IDS[:2]), cwd=st.sampled_from(PROJECTS))
    def tidy(self, name: str, cwd: str | None) -> None:
        """What only had a session's name goes."""
        path = self.home.sessions / project_key(cwd) / name
        if path.is_symlink() or path.is_file():
            path.unlink()

    @rule()
    def restart(self) -> None:
        """A server ends, and another begins with what the catalogue has kept."""
        self.database.close()
        self.indexes[1] = SessionIndex(self.store, self.database)

    def forget_lost(self) -> None:
        self.logs = {path: log for path, log in self.logs.items() if path.exists()}

    @invariant()
    def captures_equal_full_reads(self) -> None:
        for session_id in IDS if hasattr(self, "store") else ():
            full = outcome_of(partial(self.store.capture, session_id, never_cancelled))
            assert outcome_of(partial(self.capture_again, session_id)) == full
            assert outcome_of(partial(self.sources.capture, session_id, never_cancelled)) == full

    @invariant()
    def lists_equal_full_reads(self) -> None:
        if hasattr(self, "store"):
            full = full_view(self.store)
            for index in [*self.indexes, SessionIndex(self.store, self.others)]:
                bring_up_to_date(index)
                assert index_view(index) == full

    def capture_again(self, session_id: str) -> Capture:
        saved = self.store.capture_again(session_id, self.states.get, never_cancelled)
        if saved.state is not None:
            self.states[saved.key] = saved.state
        return saved.capture


def test_what_is_known_from_before_equals_a_full_read_after_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Histories, "parent", tmp_path, raising=False)
    monkeypatch.setattr(index_module, "PROBLEMS_AGAIN_SECONDS", 0)
    # Without shrinking, which takes minutes here; add it to look into a failure.
    steps = settings(
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        max_examples=100,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(Histories, settings=steps)  # pyright: ignore[reportUnknownMemberType]
