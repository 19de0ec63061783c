"""Members of other types than documented: no format is taken for a known one, and nothing is left out unsaid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pi_records import PiLog, capture_of, diagnosed, row_of, said
from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CataloguedStore, ConversationItem
from sessionref.server.stores.copilot_cli.conversation import CopilotConversation
from sessionref.server.stores.copilot_cli.records import CopilotEvent, check_version
from sessionref.server.stores.copilot_cli.workspace import title_in
from sessionref.server.stores.problems import Unreadable
from sessionref.server.stores.records import forgiving
from store_fixtures import open_fixture
from store_fixtures.codex.homes import THREAD, CodexHome
from store_fixtures.codex.rollouts import event, message, meta, record
from store_fixtures.copilot_cli import event as copilot_event
from store_fixtures.copilot_cli import typed
from store_fixtures.logs import lines_of
from store_fixtures.qwen_code import Fixture as QwenHome

AGENTS = "# AGENTS.md instructions"


@pytest.fixture
def codex(tmp_path: Path) -> CodexHome:
    return CodexHome(tmp_path)


def codex_says(home: CodexHome, *records: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The texts of a thread, and what is said of it."""
    home.write(*records)
    return [item.text for item in home.capture().items], list(home.said_of())


@pytest.mark.parametrize("kind", [None, 5, {}, ["user.text"]])
def test_a_kind_of_codex_that_is_none_leaves_the_others_in_their_places(codex: CodexHome, kind: Any) -> None:
    prompt = message("user", AGENTS, "typed", kinds=[kind, "user.text"])

    assert codex_says(codex, prompt) == (["typed"], [])


@pytest.mark.parametrize(
    "unreadable",
    [
        {"type": 5, "payload": message("user", "lost")["payload"]},
        record("response_item", {}) | {"payload": ["lost"]},
        record("response_item", {"type": "message", "role": "user", "content": {"text": "lost"}}),
        record("event_msg", {}),
    ],
)
def test_a_record_of_codex_with_nothing_that_can_be_understood_is_counted(
    codex: CodexHome, unreadable: dict[str, Any]
) -> None:
    assert codex_says(codex, message("user", "one"), unreadable) == (["one"], ["unknown-events"])


def test_a_way_to_keep_a_history_of_codex_that_is_no_text_is_a_newer_format(codex: CodexHome) -> None:
    codex.write(message("user", "one"), header=meta(THREAD, history_mode=7))

    assert codex.refusal() is ReadFailedReason.NEWER_FORMAT


@pytest.mark.parametrize("said_to_end", [99, 2, 3])
def test_a_history_of_codex_whose_two_ends_are_not_one_place_is_refused(codex: CodexHome, said_to_end: int) -> None:
    header = {**meta(THREAD), "ordinal": 0}
    talk = [{**one, "ordinal": at} for at, one in enumerate([message("user", "one"), message("assistant", "two")], 1)]
    path = codex.write(*talk, header=header)
    end = path.read_bytes().index(b"\n", path.read_bytes().index(b'"one"')) + 1
    fork = "01a229e5-7777-7000-8000-000000000003"
    base = {"thread_id": THREAD, "end_byte_offset": end, "end_ordinal_exclusive": said_to_end}
    codex.write(message("user", "mine"), thread=fork, header=meta(fork, history_base=base))

    if said_to_end == 2:
        assert codex.talk(fork) == ["> one", "> mine"]
    else:
        assert codex.refusal(fork) is ReadFailedReason.CORRUPT


@pytest.mark.parametrize("version", ["4", "3", 4.5, 1e300, 0, -1, [], {"major": 4}])
def test_a_version_of_pi_that_is_not_known_is_a_newer_format(tmp_path: Path, version: Any) -> None:
    log = PiLog(version=version)
    log.user("one")

    assert failure_of(lambda: capture_of(tmp_path, log)).reason is ReadFailedReason.NEWER_FORMAT


def test_a_version_of_pi_may_be_written_as_a_float(tmp_path: Path) -> None:
    log = PiLog(version=3.0)
    first, _ = log.talk("one", "abandoned")
    log.leaf = first
    log.assistant("two")

    assert said(capture_of(tmp_path, log)) == ["u:one", "a:two"]


@pytest.mark.parametrize("parent", [5, [], {}, True, "00000003"])
def test_a_parent_of_pi_that_is_none_or_the_entry_itself_costs_nothing(tmp_path: Path, parent: Any) -> None:
    log = PiLog()
    log.talk("one", "two", "three")
    log.records[-1]["parentId"] = parent

    assert said(capture_of(tmp_path, log)) == ["u:one", "a:two", "u:three"]


@pytest.mark.parametrize(
    "members",
    [
        {"type": "of_tomorrow", "message": {"role": "assistant", "content": "lost"}},
        {"message": {"role": "assistant", "content": {"text": "lost"}}},
        {"id": 5},
    ],
)
def test_what_somebody_says_in_pi_in_an_unknown_way_is_counted(tmp_path: Path, members: dict[str, Any]) -> None:
    log = PiLog()
    log.talk("one", "lost", "three")
    log.records[2] |= members
    capture = capture_of(tmp_path, log)

    assert (said(capture), diagnosed(capture)) == (["u:one", "u:three"], ["unknown-events"])


def test_a_session_of_pi_is_not_called_by_what_an_extension_has_put_in(tmp_path: Path) -> None:
    log = PiLog()
    log.entry("custom_message", message={"role": "user", "content": "injected"})
    log.user("typed")

    assert row_of(tmp_path, log).title == "typed"


def copilot_says(*events: dict[str, Any]) -> list[str]:
    fold = CopilotConversation()
    for one in msgspec.convert(events, list[CopilotEvent]):
        fold.feed(one)
    return [item.text for item in fold.items()]


@pytest.mark.parametrize("version", ["2", "1", 1.5, 2.0, {}, [1], -1])
def test_a_version_of_copilot_that_is_not_known_is_a_newer_format(version: Any) -> None:
    start = forgiving({"type": "session.start", "data": {"version": version}}, CopilotEvent)
    assert start is not None

    with pytest.raises(Unreadable, match="newer-format"):
        check_version(start)


def test_what_is_said_in_copilot_after_a_rewind_is_in_no_summary_that_was_begun_before_it() -> None:
    prompts = [typed(text) | {"id": text} for text in ("one", "two", "three", "four", "five")]
    rewind = copilot_event("session.snapshot_rewind", upToEventId="two")
    done = copilot_event("session.compaction_complete", success=True, summaryContent="summary")
    begun = copilot_event("session.compaction_start")

    assert copilot_says(*prompts[:3], begun, rewind, *prompts[3:], done) == ["summary", "four", "five"]


def test_a_list_beside_a_log_of_copilot_names_nothing() -> None:
    assert title_in("- name\n- injected\n") is None


@pytest.fixture
def qwen(tmp_path: Path) -> QwenHome:
    return QwenHome(tmp_path)


def qwen_store(home: QwenHome, *records: dict[str, Any]) -> CataloguedStore:
    home.create()
    path = home.write(home.name(1), [])
    path.write_bytes(lines_of(records))
    return home.open()


def qwen_record(identity: Any, parent: Any, kind: str, text: str, **more: Any) -> dict[str, Any]:
    message = {"role": "model" if kind == "assistant" else "user", "parts": [{"text": text}]}
    return {"uuid": identity, "parentUuid": parent, "type": kind, "cwd": "/w", "message": message, **more}


def qwen_says(home: QwenHome, *records: dict[str, Any]) -> tuple[list[ConversationItem], list[str]]:
    capture = qwen_store(home, *records).capture(home.session_id(home.name(1)), never_cancelled)
    return capture.items, [one.kind for one in capture.diagnostics]


def test_a_session_of_qwen_is_not_called_by_the_prompt_of_a_sidechain(qwen: QwenHome) -> None:
    sidechain = qwen_record("s", None, "user", "delegated", isSidechain=True)
    store = qwen_store(qwen, sidechain, qwen_record("a", None, "user", "typed"))

    assert [row.title for row in store.list_sessions(never_cancelled).sessions] == ["typed"]


def test_a_session_of_a_sub_agent_of_qwen_is_called_by_what_was_delegated(tmp_path: Path) -> None:
    home = open_fixture("qwen-code", tmp_path)
    home.create()
    home.write(home.name(1), [("user", "typed")])
    hidden = home.write_subagent("agent-1", home.name(1), [("user", "delegated")])
    rows = {row.session_id: row.title for row in home.open().list_sessions(never_cancelled).sessions}

    assert rows[home.session_id(hidden)] == "delegated"


@pytest.mark.parametrize("parent", [5, [], True, "c"])
def test_a_parent_of_qwen_that_is_none_or_the_record_itself_costs_nothing(qwen: QwenHome, parent: Any) -> None:
    talk = [qwen_record("a", None, "user", "one"), qwen_record("b", "a", "assistant", "two")]
    items, _ = qwen_says(qwen, *talk, qwen_record("c", parent, "user", "three"))

    assert [item.text for item in items] == ["one", "two", "three"]


def test_a_message_of_qwen_in_two_records_without_a_parent_costs_nothing_before_it(qwen: QwenHome) -> None:
    halves = [qwen_record("b", "lost", "assistant", text) for text in ("two", "three")]
    items, _ = qwen_says(qwen, qwen_record("a", None, "user", "one"), *halves)

    assert [item.text for item in items] == ["one", "two", "three"]


@pytest.mark.parametrize("content", ["lost", {"parts": "lost"}, None])
def test_a_message_of_qwen_that_cannot_be_understood_is_counted(qwen: QwenHome, content: Any) -> None:
    answer = qwen_record("b", "a", "assistant", "") | {"message": content}
    items, kinds = qwen_says(qwen, qwen_record("a", None, "user", "one"), answer)

    assert ([item.text for item in items], kinds) == (["one"], ["unknown-events"])


@pytest.mark.parametrize("thought", [True, "yes", 1, {"text": "hm"}])
def test_a_thought_of_qwen_is_none_of_its_answer_however_it_is_marked(qwen: QwenHome, thought: Any) -> None:
    answer = qwen_record("b", "a", "assistant", "")
    answer["message"]["parts"] = [{"text": "thinking", "thought": thought}, {"text": "said", "thought": None}]
    items, _ = qwen_says(qwen, qwen_record("a", None, "user", "one"), answer)

    assert [item.text for item in items] == ["one", "said"]


def test_an_event_of_codex_is_known_by_its_type(codex: CodexHome) -> None:
    assert codex_says(codex, message("user", "one"), event("token_count", info=None)) == (["one"], [])
