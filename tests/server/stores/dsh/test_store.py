"""The store as a whole: what is captured and listed, what is refused, and with which reason."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dsh_fixtures import (
    DshHome,
    Event,
    assistant,
    checkpoint,
    descriptor,
    event,
    packed_texts,
    plugin_message,
    step_end,
    step_start,
    text_blocks,
    title,
    tool_call,
    tool_result,
    turn_end,
    turn_start,
    user,
)
from sessionref.protocol.errors import ReadFailedReason, SessionReferenceError
from sessionref.server.store import Capture, SessionStore
from sessionref.server.stores import folders
from sessionref.server.stores.dsh import DshStore, ReadingLimits
from sessionref.server.stores.dsh.sessions import encode_stamp, has_stamp
from sessionref.server.stores.folders import Folder

TALK = [user("a"), assistant("b"), user("c")]
A, B, C = ("user", "a"), ("assistant", "b"), ("user", "c")
needs_permissions = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="everything is readable to this user"
)


def no_check() -> None:
    pass


@pytest.fixture
def home(tmp_path: Path) -> DshHome:
    return DshHome(tmp_path / "home")


def capture(home: DshHome, session_id: str = "s", limits: ReadingLimits | None = None) -> Capture:
    return DshStore(home.path, limits=limits or ReadingLimits()).capture(session_id, no_check)


def conversation(home: DshHome, session_id: str = "s") -> list[tuple[str, str]]:
    return [(item.role, item.text) for item in capture(home, session_id).items]


def refusal(home: DshHome, session_id: str = "s", limits: ReadingLimits | None = None) -> ReadFailedReason | None:
    with pytest.raises(SessionReferenceError) as caught:
        capture(home, session_id, limits)
    assert caught.value.facts.session_id == session_id
    return caught.value.reason


def kinds(captured: Capture) -> list[str]:
    return [diagnostic.kind for diagnostic in captured.diagnostics]


def listed(home: DshHome) -> list[str]:
    return sorted(row.session_id for row in DshStore(home.path).list_sessions(no_check).sessions)


def unlisted(home: DshHome) -> dict[str, str]:
    return {row.place: row.reason for row in DshStore(home.path).list_sessions(no_check).unlisted}


def everything(version: int) -> list[Event]:
    """Something of every kind that a projection must take or leave."""
    return [
        turn_start(),
        step_start(),
        user("old"),
        assistant("old answer", tool_call()),
        tool_result("hidden", version=version),
        checkpoint("pre", "sum", version=version).replacing(2, 4),
        user("a", "b"),
        plugin_message("hidden", version),
        user("hidden", kind="session-reference", form="recall", version=1, references=[]),
        user("hidden", kind="User"),
        user(""),
        event("assistant/attempt" if version >= 2 else "assistant/chunk", {"turn": 1, "step": 1}),
        assistant("final", {"type": "reasoning", "text": "hidden"}, interrupted=True),
        title("Draft"),
        title("Title"),
        step_end(),
        turn_end(),
    ]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("version", range(5))
def test_the_conversation_is_prompts_answers_and_checkpoints_alone(
    home: DshHome, version: int, compressed: bool
) -> None:
    home.write("s", everything(version), version=version, cwd="/w", compressed=compressed)
    captured = capture(home)
    assert [(item.role, item.text, item.checkpoint) for item in captured.items] == [
        ("user", "pre\nsum", True),
        ("user", "a\nb", False),
        ("assistant", "final", False),
    ]
    assert (captured.format_version, captured.captured_through_seq, captured.cwd) == (version, 16, "/w")
    assert captured.diagnostics == []


def test_the_store_is_a_session_store(home: DshHome) -> None:
    store: SessionStore = DshStore(home.path, kind="other")
    assert (store.kind, store.lists_subagents) == ("other", True)


def test_an_empty_log_has_no_position(home: DshHome) -> None:
    home.write("s")
    assert (capture(home).captured_through_seq, capture(home).items) == (None, [])


@pytest.mark.parametrize(
    ("version", "marker"), [(3, {"kind": "compact-checkpoint"}), (4, {"kind": "plugin", "plugin": "compact"})]
)
def test_a_checkpoint_marker_of_another_format_is_none(home: DshHome, version: int, marker: dict[str, Any]) -> None:
    home.write("s", [user("a"), user("k", **marker)], version=version)
    assert conversation(home) == [A]


def legacy(kind: str, data: dict[str, Any]) -> Event:
    return Event(kind, data, surface=True)


def test_the_shapes_of_early_logs_are_understood(home: DshHome) -> None:
    person, goal = {"kind": "user", "rpcId": "r"}, {"kind": "plugin", "plugin": "goal"}
    envelope = {"displayContent": text_blocks("five"), "prefixContexts": []}
    events = [
        event("turn/start", {"turn": 1, "trigger": {"kind": "x"}}),
        step_start(),
        legacy("user/message", {"content": text_blocks("one"), "source": person}),
        legacy("assistant/message", {"content": [*text_blocks("two"), tool_call()], "provenance": {"model": "m"}}),
        legacy("tool/result", {"callId": "call", "content": text_blocks("hidden"), "isError": False}),
        legacy("steering/message", {"turn": 1, "message": user("three").data}),
        legacy("steering/message", {"turn": 1, "content": text_blocks("four"), "source": person}),
        legacy("steering/message", {"turn": 1, "content": text_blocks("hidden"), "source": goal}),
        legacy("user/message", {**user("## baked\n\nfive").data, "envelope": envelope}),
        event("compact/start"),
        event("mode/set", {"mode": "x"}),
        event("context/message", {"content": text_blocks("hidden")}),
        event("request/header-delta"),
        packed_texts("hidden", "hidden"),
    ]
    home.write("s", events)
    assert conversation(home) == [
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
        ("user", "four"),
        ("user", "five"),
    ]
    assert capture(home).captured_through_seq == 14 + 2
    assert kinds(capture(home)) == ["interrupted-turn"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"a\\ud800b", "a\ud800b"),
        (b"\\ud83d\\ude00", "😀"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        ("a\u2028\u0085\u000bb".encode().replace(b"\x0b", b"\\u000b"), "a\u2028\u0085\x0bb"),
        (b" ", " "),
    ],
)
def test_text_comes_back_as_javascript_would_read_it(home: DshHome, written: bytes, read: str) -> None:
    home.write("s", [user("MARK").line(0, 0).replace(b"MARK", written)])
    assert conversation(home) == [("user", read)]


def test_halves_that_meet_between_blocks_do_not_join_over_the_line_break(home: DshHome) -> None:
    home.write("s", [user("\ud83d", "\ude00")])
    assert conversation(home) == [("user", "\ud83d\n\ude00")]


def test_an_unfinished_line_at_the_end_is_left_out(home: DshHome) -> None:
    home.write("s", [*TALK, user("d").line(3, 0)[:-1]])
    captured = capture(home)
    assert (conversation(home), captured.captured_through_seq, kinds(captured)) == ([A, B, C], 2, ["torn-tail"])


def test_an_unfinished_frame_at_the_end_gives_its_complete_lines(home: DshHome) -> None:
    home.write("s", TALK, compressed=True, torn_bytes=3)
    assert kinds(capture(home)) == ["torn-tail"]
    assert conversation(home)[:2] == [A, B]


@pytest.mark.parametrize("bad", [b"{\n", b"\n", user("x").line(9, 0), user("x").line(0, 0), b"7\n"])
def test_lines_behind_a_bad_one_are_skipped_and_counted(home: DshHome, bad: bytes) -> None:
    home.write("s", [user("a"), bad, user("c")])
    captured = capture(home)
    assert (conversation(home), captured.captured_through_seq) == ([A], 0)
    assert kinds(captured) == ["skipped-lines"]
    assert captured.diagnostics[0].detail.startswith("2 ")


def test_a_bad_line_with_a_finished_turn_behind_it_is_corrupt(home: DshHome) -> None:
    home.write("s", [user("a"), b"{\n", user("c"), turn_end()])
    assert refusal(home) is ReadFailedReason.CORRUPT
    home.write("t", [user("a"), b"{\n", user('"turn/end"'), b'{"type":"turn/end"\n'])
    assert conversation(home, "t") == [A]


def test_a_turn_that_was_interrupted_is_told_with_its_open_calls(home: DshHome) -> None:
    home.write("s", [turn_start(), step_start(), user("a"), assistant("b", tool_call("x"), tool_call("y"))])
    captured = capture(home)
    assert (kinds(captured), captured.captured_through_seq) == (["interrupted-turn"], 7)
    assert "2 tool calls" in captured.diagnostics[0].detail


def test_unknown_events_are_passed_over_and_told(home: DshHome) -> None:
    home.write("s", [user("a"), event("new/a"), event("new/b", ignorable=True), user("c")], version=4)
    assert conversation(home) == [A, C]
    assert [(d.kind, d.detail[:2]) for d in capture(home).diagnostics] == [("unknown-events", "1 ")]
    home.write("t", [event("new/b", ignorable=True)], version=4)
    assert capture(home, "t").diagnostics == []


def test_an_unknown_surface_event_is_refused(home: DshHome) -> None:
    home.write("s", [user("a"), event("new/a", surfaceOp="append")], version=4)
    assert refusal(home) is ReadFailedReason.CORRUPT


@pytest.mark.parametrize("events", [[b"\xff" * 200 + b"\n"], [user("x" * 200)]])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_line_over_the_limit_is_refused(home: DshHome, events: Sequence[Event | bytes], compressed: bool) -> None:
    home.write("s", events, compressed=compressed)
    assert refusal(home, limits=ReadingLimits(line_bytes=150)) is ReadFailedReason.TOO_LARGE


def test_a_conversation_over_the_limit_is_refused(home: DshHome) -> None:
    home.write("s", [user("x" * 60), tool_result("y" * 500), user("x" * 60)])
    assert refusal(home, limits=ReadingLimits(conversation_bytes=100)) is ReadFailedReason.TOO_LARGE
    assert len(capture(home, limits=ReadingLimits(conversation_bytes=120)).items) == 2


def test_a_line_nested_too_deep_is_refused(home: DshHome) -> None:
    home.write("s", [user("a"), b'{"type":"tool/call","seq":1,"time":0,"data":' + b"[" * 600 + b"]" * 600 + b"}\n"])
    assert refusal(home) is ReadFailedReason.TOO_LARGE


@pytest.mark.parametrize("session_id", [".", "..", "../../etc/passwd", "a b", "😀", "\ud800", "C:\\x", "~0000"])
def test_any_id_can_be_read_and_listed(home: DshHome, session_id: str) -> None:
    home.write(session_id, TALK, cwd="C:\\Users\\é")
    assert conversation(home, session_id) == [A, B, C]
    assert listed(home) == [session_id]


@pytest.mark.parametrize("session_id", ["nowhere", "../../outside", "x" * 256, "é" * 52, "", "\0"])
def test_an_id_without_a_log_is_not_found(home: DshHome, session_id: str) -> None:
    home.write("s", TALK)
    home.write("outside", TALK, folder=("..", "outside"))
    assert refusal(home, session_id) is ReadFailedReason.NOT_FOUND


def test_an_impossible_id_is_refused_without_touching_the_disk(home: DshHome, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise AssertionError("the disk was touched")

    monkeypatch.setattr(os, "open", refuse)
    for session_id in ("", "x" * 256):
        assert refusal(home, session_id) is ReadFailedReason.NOT_FOUND


def test_a_session_in_two_projects_is_a_duplicate_and_not_listed(home: DshHome) -> None:
    home.write("s", TALK, cwd="/one")
    home.write("s", TALK, cwd="/two")
    home.write("t", TALK)
    assert refusal(home) is ReadFailedReason.DUPLICATE_ID
    assert listed(home) == ["t"]
    assert unlisted(home) == {"--one--/s": "duplicate-id", "--two--/s": "duplicate-id"}


def test_a_folder_without_a_log_is_no_session(home: DshHome) -> None:
    home.write("s", TALK, cwd="/one")
    (home.sessions / "--two--" / "s").mkdir(parents=True)
    (home.sessions / "--two--" / "session.jsonl").write_bytes(b"flat")
    (home.sessions / "stray").write_bytes(b"")
    assert conversation(home) == [A, B, C]
    assert (listed(home), unlisted(home)) == (["s"], {})


def test_a_newer_format_is_refused_although_an_older_file_is_there(home: DshHome) -> None:
    home.write("s", TALK, version=4)
    home.write("s", TALK, version=5)
    assert refusal(home) is ReadFailedReason.NEWER_FORMAT
    assert unlisted(home) == {"_no-cwd/s": "newer-format"}


def test_the_highest_generation_is_read(home: DshHome) -> None:
    home.write("s", [user("old")], version=1)
    home.write("s", TALK, version=3, compressed=True)
    home.write("s", [user("temporary")], file_name="session.v4.jsonl.0123456789ab.tmp")
    assert conversation(home) == [A, B, C]


def test_both_encodings_of_one_generation_are_corrupt(home: DshHome) -> None:
    home.write("s", TALK)
    home.write("s", TALK, compressed=True)
    assert refusal(home) is ReadFailedReason.CORRUPT
    assert unlisted(home) == {"_no-cwd/s": "corrupt"}


@pytest.mark.parametrize(
    "how",
    [
        {"header": b"{}\n"},
        {"header": b"nonsense\n"},
        {"header": b""},
        {"version": 2, "file_name": "session.v3.jsonl"},
        {"header": {"id": "other"}},
        {"cwd": "/a", "folder": ("--b--", "s")},
        {"cwd": "/a", "folder": ("--A--", "s")},
        {"folder": ("--b--", "s")},
    ],
)
def test_a_log_that_does_not_name_its_own_place_is_corrupt(home: DshHome, how: dict[str, Any]) -> None:
    place = home.write("s", TALK, **how).parent
    assert refusal(home) is ReadFailedReason.CORRUPT
    assert (listed(home), unlisted(home)) == ([], {f"{place.parent.name}/s": "corrupt"})


def test_links_fifos_and_sockets_are_outside_the_root_and_not_listed(home: DshHome, tmp_path: Path) -> None:
    outside = DshHome(tmp_path / "outside")
    project = home.sessions / "_no-cwd"
    home.write("real", TALK)
    (project / "linked-folder").symlink_to(outside.write("linked-folder", TALK).parent)
    (project / "linked-inside").symlink_to("real")
    (project / "dangling").symlink_to("nowhere")
    (project / "linked-file").mkdir()
    (project / "linked-file" / "session.jsonl").symlink_to(outside.write("linked-file", TALK))
    os.mkfifo(home.write("fifo", TALK).parent / "session.v1.jsonl")
    (home.write("folder", TALK).parent / "session.v1.jsonl").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        place = home.write("socket", TALK).parent
        # A socket's path is short, so it is bound relative to its folder.
        before = os.open(".", os.O_RDONLY)
        os.chdir(place)
        try:
            listener.bind("session.v1.jsonl")
        finally:
            os.fchdir(before)
            os.close(before)
    refused = ["dangling", "fifo", "folder", "linked-file", "linked-folder", "linked-inside", "socket"]
    for session_id in refused:
        assert refusal(home, session_id) is ReadFailedReason.OUTSIDE_ROOT, session_id
    assert listed(home) == ["real"]
    assert unlisted(home) == {f"_no-cwd/{name}": "outside-root" for name in refused}


def test_a_linked_project_is_not_followed_but_the_root_may_be_a_link(home: DshHome, tmp_path: Path) -> None:
    outside = DshHome(tmp_path / "outside")
    outside.write("s", TALK, cwd="/p")
    (home.sessions / "--p--").symlink_to(outside.sessions / "--p--")
    assert refusal(home) is ReadFailedReason.NOT_FOUND
    assert listed(home) == []
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "sessions").symlink_to(outside.sessions)
    assert listed(DshHome(tmp_path / "linked")) == ["s"]


def test_a_home_without_sessions_is_empty(tmp_path: Path) -> None:
    store = DshStore(tmp_path / "nowhere")
    assert store.list_sessions(no_check).sessions == []
    with pytest.raises(SessionReferenceError) as caught:
        store.capture("s", no_check)
    assert caught.value.reason is ReadFailedReason.NOT_FOUND
    assert not (tmp_path / "nowhere").exists()


def test_a_file_in_the_place_of_the_sessions_folder_fails_the_listing(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_bytes(b"")
    with pytest.raises(SessionReferenceError) as caught:
        DshStore(tmp_path).list_sessions(no_check)
    assert caught.value.reason is ReadFailedReason.IO


@needs_permissions
def test_what_may_not_be_read_is_told_and_costs_only_its_own_rows(home: DshHome) -> None:
    home.write("fine", TALK)
    for path in (home.write("s", TALK), home.write("t", TALK).parent, home.write("u", TALK, cwd="/u").parent.parent):
        path.chmod(0)
    try:
        assert [refusal(home, name) for name in "stu"] == [ReadFailedReason.PERMISSION] * 3
        assert listed(home) == ["fine"]
        assert unlisted(home) == {"_no-cwd/s": "permission", "_no-cwd/t": "permission", "--u--/": "permission"}
        home.sessions.chmod(0)
        with pytest.raises(SessionReferenceError) as caught:
            listed(home)
        assert caught.value.reason is ReadFailedReason.PERMISSION
    finally:
        home.sessions.chmod(0o700)
        (home.sessions / "--u--").chmod(0o700)
        (home.sessions / "_no-cwd" / "t").chmod(0o700)


def test_any_other_failure_of_the_system_is_io(home: DshHome, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write("s", TALK)

    def fail(*_: object) -> bytes:
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "read", fail)
    assert refusal(home) is ReadFailedReason.IO
    assert unlisted(home) == {"_no-cwd/s": "io"}


def test_a_session_that_vanishes_while_listing_is_no_problem(home: DshHome) -> None:
    home.write("a", TALK)
    place = home.write("b", TALK).parent

    def check() -> None:
        if place.exists():
            shutil.rmtree(place)

    listing = DshStore(home.path).list_sessions(check)
    assert ([row.session_id for row in listing.sessions], listing.unlisted) == (["a"], [])


def test_a_row_has_the_facts_of_its_log(home: DshHome) -> None:
    how: dict[str, Any] = {"origin": "subagent", "parentSession": "p", "delegationDepth": 1}
    home.write("s", [title("One"), descriptor("r"), title("Two")], cwd="/w", created_at=5, header=how, modified_at=1234)
    (row,) = DshStore(home.path).list_sessions(no_check).sessions
    assert (row.session_id, row.created_at, row.updated_at, row.cwd) == ("s", 5, 1234, "/w")
    assert (row.title, row.agent_label, row.is_subagent) == ("Two", "r", True)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("events", "labels"),
    [
        ([], (None, None)),
        ([user('"session/title"'), title("T")], ("T", None)),
        ([title("T"), title(""), title(7), title(None), event("session/title", 7)], ("T", None)),
        ([title("\ud800")], ("\ud800", None)),
        ([event("tool/call", ["session/title", "subagent/descriptor"])], (None, None)),
        ([title("T"), event("session/title-llm-request", {"title": "U"})], ("T", None)),
        ([descriptor("a", version=1)], (None, "a")),
        ([descriptor("a"), descriptor("b", version=3, agentReasoningEffort="high")], (None, "b")),
        ([descriptor("a"), descriptor("b", mode="one-shot", toolFilter={"allow": ["x"]}, persona="p")], (None, "b")),
        (
            [descriptor("a"), event("subagent/descriptor", {"version": 2, "mode": "one-shot", "provider": "x"})],
            (None, None),
        ),
        ([descriptor("a"), descriptor("b", version=4)], (None, None)),
        ([descriptor("a"), descriptor("b", more=1)], (None, None)),
        ([descriptor("a"), descriptor("b", mode="other")], (None, None)),
        ([descriptor("a"), descriptor("b", provider=1)], (None, None)),
        ([descriptor("a"), descriptor("b", agentReasoningEffort="high")], (None, None)),
        ([descriptor("a"), descriptor("b", version=1, mode="continuable")], (None, None)),
        ([descriptor("a"), descriptor("b", toolFilter={"allow": [1]})], (None, None)),
        ([descriptor("a"), event("subagent/descriptor", 7)], (None, None)),
    ],
)
def test_labels_are_the_last_title_and_the_last_descriptor_if_valid(
    home: DshHome, events: list[Event], labels: tuple[str | None, str | None], compressed: bool
) -> None:
    home.write("s", events, compressed=compressed)
    (row,) = DshStore(home.path).list_sessions(no_check).sessions
    assert (row.title, row.agent_label) == labels


@pytest.mark.parametrize(
    "line",
    [
        b'{"seq":1,"type":"session/title","data":{"title":"T"}}\n',
        b'{"data":{"title":"T"},"seq":1,"type":"session/title"}\n',
        b'{ "type" : "session/title" , "seq" : 1 , "data" : { "title" : "T" } }\n',
        b'\t{"type":"session/title","seq":1,"data":{"title":"T"}}\n',
        b'{"type":"session/title","seq":1,"data":{"title":"T","about":"%s"}}\n' % (b"x" * 100_000),
    ],
)
def test_a_title_counts_wherever_its_line_says_what_it_is(home: DshHome, line: bytes) -> None:
    home.write("s", [title("Old"), line, user("x").line(2, 0)])
    (row,) = DshStore(home.path).list_sessions(no_check).sessions
    assert row.title == "T"


def test_a_title_in_an_unfinished_line_does_not_count(home: DshHome) -> None:
    home.write("s", [title("T"), title("U").line(1, 0)[:-1]])
    (row,) = DshStore(home.path).list_sessions(no_check).sessions
    assert row.title == "T"


def test_a_title_is_found_in_any_block_of_a_long_log(home: DshHome) -> None:
    many = [tool_result("x" * 50) for _ in range(40)]
    home.write("s", [title("Old"), *many, title("New"), *many], lines_a_frame=7, compressed=True)
    limits = ReadingLimits(piece_bytes=64, compressed_bytes=16)
    (row,) = DshStore(home.path, limits=limits).list_sessions(no_check).sessions
    assert row.title == "New"


@pytest.mark.parametrize("compressed", [False, True])
def test_the_size_of_reading_steps_changes_nothing(home: DshHome, compressed: bool) -> None:
    home.write("s", everything(4), version=4, compressed=compressed)
    whole = capture(home)
    for size in (1, 2, 7, 64, 1000):
        assert capture(home, limits=ReadingLimits(piece_bytes=size, compressed_bytes=size)) == whole


def test_reading_stops_when_the_request_was_cancelled(home: DshHome) -> None:
    class Cancelled(Exception):
        pass

    def check() -> None:
        raise Cancelled

    home.write("s", TALK)
    with pytest.raises(Cancelled):
        DshStore(home.path).capture("s", check)
    with pytest.raises(Cancelled):
        DshStore(home.path).list_sessions(check)


def test_reading_leaves_no_trace_and_no_open_file(home: DshHome) -> None:
    home.write("s", TALK)
    home.write("bad", [b"{\n", turn_end()])
    before = sorted(path for path in home.path.rglob("*"))
    open_files = Path("/proc/self/fd")
    descriptors = len(list(open_files.iterdir())) if open_files.exists() else 0
    capture(home)
    refusal(home, "bad")
    listed(home)
    assert sorted(path for path in home.path.rglob("*")) == before
    if descriptors:
        assert len(list(open_files.iterdir())) == descriptors


def test_a_log_that_grows_while_it_is_read_is_read_as_it_was(home: DshHome) -> None:
    path = home.write("s", TALK)
    looks = 0

    def check() -> None:
        nonlocal looks
        looks += 1
        # The first look is at the project folder, the second before the first bytes of the log.
        if looks == 3:
            with path.open("ab") as file:
                file.write(user("d").line(3, 0))

    captured = DshStore(home.path, limits=ReadingLimits(piece_bytes=32)).capture("s", check)
    assert (captured.captured_through_seq, captured.diagnostics) == (2, [])
    assert capture(home).captured_through_seq == 3


def test_a_system_that_opens_by_path_only_refuses_links_all_the_same(
    home: DshHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_RELATIVE", False)
    outside = DshHome(tmp_path / "outside")
    home.write("s", TALK, cwd="/w", compressed=True)
    (home.sessions / "--w--" / "linked").symlink_to(outside.write("linked", TALK, cwd="/w").parent)
    os.mkfifo(home.write("fifo", TALK, cwd="/w").parent / "session.v1.jsonl")
    assert conversation(home) == [A, B, C]
    assert listed(home) == ["s"]
    assert [refusal(home, name) for name in ("linked", "fifo")] == [ReadFailedReason.OUTSIDE_ROOT] * 2
    assert listed(DshHome(tmp_path / "empty")) == []
    assert DshStore(tmp_path / "nowhere").list_sessions(no_check).sessions == []


@pytest.mark.parametrize("time", [10**30, -(10**30)])
def test_a_log_whose_time_is_no_64_bits_has_a_stamp_that_holds_for_nothing(home: DshHome, time: int) -> None:
    log = home.write("a", TALK)
    facts = os.stat_result(tuple(log.stat()), {"st_mtime_ns": time})

    with Folder.root(home.sessions) as root:
        assert not has_stamp(root, "_no-cwd/a", encode_stamp(1, log.name, facts))
