"""The resolver: order of effects, all or nothing, spills and cancellation (contract section 4)."""

from __future__ import annotations

import asyncio
import copy
import functools
import json
import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from blockbuster import blockbuster_ctx

from resolver_doubles import (
    MemorySpills,
    MemoryStore,
    Stop,
    all_returned,
    captured,
    checkpoint,
    hanging,
    make_resolver,
    never_cancelled,
    said,
)
from sessionref.protocol.errors import ErrorCode, ReadFailedReason, SessionReferenceError, cancelled, read_failed
from sessionref.protocol.jsontext import encode_json, tag_safe
from sessionref.protocol.mention import format_session_reference_mention
from sessionref.protocol.methods import (
    AssembledParams,
    CandidatesParams,
    PrepareMessagesParams,
    PrepareMessagesResult,
    PrepareParams,
    PrepareResult,
    Route,
)
from sessionref.server import resolver as resolver_module
from sessionref.server import snapshots as snapshots_module
from sessionref.server.budget import ModelCatalogue
from sessionref.server.references import INLINE_CHARACTERS, ReferringMessage, normalise_message, parse_content
from sessionref.server.rendering import OmissionNotice, render_context, render_transcript
from sessionref.server.resolver import Prepared, Resolver
from sessionref.server.retention import retain
from sessionref.server.settings import Settings
from sessionref.server.spill import LocalSpillStore, SavedSpill, SpillTransaction
from sessionref.server.store import Capture, CheckCancelled, Diagnostic, SessionHeader, Unlisted
from sessionref.server.threads import WorkerThreads

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

RECORD_KEYS = [
    "sessionId",
    "label",
    "capturedThroughSeq",
    "compacted",
    "originalMessages",
    "retainedMessages",
    "omittedMessages",
    "omittedBytes",
    "truncated",
    "inputIndex",
]
SNAPSHOT: dict[str, Any] = {"sessionId": "b", "label": "b", "cwd": None, "capturedThroughSeq": 0, "conversation": []}
SMALL = Settings(max_reference_bytes=400)


@pytest.fixture(autouse=True)
def no_blocking_call_on_the_event_loop() -> Iterator[None]:
    """Make every blocking call that our code makes on the event loop an error."""
    with blockbuster_ctx("sessionref.server"):
        yield


def mention(session_id: str, label: str | None = None) -> str:
    return format_session_reference_mention(session_id, label)


def params(content: Any = "", *session_ids: str, agent_id: str = "agent", **more: Any) -> PrepareParams:
    """Params of `prepare` with these references, or without any for the content to be parsed."""
    if session_ids:
        more["references"] = [{"sessionId": session_id} for session_id in session_ids]
    return PrepareParams(agent_id, content, **more)


def of_user(content: Any, **members: Any) -> dict[str, Any]:
    return {"id": "m", "role": "user", "content": content, "source": {"kind": "user"}, **members}


def answered(prepared: Prepared[PrepareResult]) -> dict[str, Any]:
    """The result as it goes over the wire."""
    decoded: dict[str, Any] = json.loads(encode_json(prepared.result))
    return decoded


def answered_messages(prepared: Prepared[PrepareMessagesResult]) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(encode_json(prepared.result))
    return decoded


def context_text(context: dict[str, Any]) -> str:
    (block,) = context["content"]
    assert set(block) == {"type", "text"}
    assert block["type"] == "text"
    text: str = block["text"]
    return text


def snapshots_in(context: dict[str, Any]) -> list[dict[str, Any]]:
    between = context_text(context).partition("<referenced-sessions>\n")[2].partition("\n</referenced-sessions>")[0]
    decoded: list[dict[str, Any]] = json.loads(between)
    return decoded


def notices_in(context: dict[str, Any]) -> list[dict[str, Any]]:
    text = context_text(context)
    assert "## Reference omissions" in text
    decoded: list[dict[str, Any]] = json.loads(text.rpartition("\n")[2])
    return decoded


def long_session(session_id: str, **facts: Any) -> Capture:
    """A session that does not fit SMALL."""
    return captured(session_id, "first " * 100, said("last " * 100, "assistant"), **facts)


def files_below(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if not path.is_dir())


async def failure_of(call: Awaitable[object]) -> SessionReferenceError:
    """The domain failure that a call raises, which must come at once."""
    with anyio.fail_after(5):
        try:
            result = await call
        except SessionReferenceError as failure:
            return failure
    raise AssertionError(f"nothing was raised, the result was {result!r}")


async def happened(event: threading.Event) -> None:
    """Wait for a thread of the test."""
    assert await anyio.to_thread.run_sync(event.wait, 5)


# Content and references


@pytest.mark.parametrize(
    "content", ["plain", "", [], [{"type": "text", "text": "plain", "more": 1}, {"type": "image"}, None]]
)
async def test_without_a_reference_content_comes_back_alone_and_no_store_is_touched(content: Any) -> None:
    store = MemoryStore()
    resolver = make_resolver(store, settings=Settings(model_catalogue=Path("/nowhere")))
    given = copy.deepcopy(content)
    prepared = await resolver.prepare(params(given, route=Route("p", "m")))

    assert answered(prepared) == {"content": content}
    assert given == content
    assert (store.captured, store.listings) == ([], 0)
    assert prepared.discard is None


async def test_references_given_mean_that_the_content_is_not_parsed() -> None:
    store = MemoryStore([captured("a", "text")])
    content = [{"type": "text", "text": mention("other")}]
    resolver = make_resolver(store)
    none = await resolver.prepare(params(content, references=[]))
    one = await resolver.prepare(params(content, "a"))

    assert answered(none) == {"content": content}
    assert none.result.content is content
    assert answered(one)["content"] == content
    assert store.captured == ["a"]


async def test_a_mention_becomes_its_label_and_one_context() -> None:
    store = MemoryStore([captured("a", "question", said("answer", "assistant"), cwd="/w", version=4, seq=12)])
    prepared = await make_resolver(store).prepare(params(f"like {mention('a', 'My <label>')}?"))

    result = answered(prepared)
    assert list(result) == ["content", "additionalContext"]
    assert result["content"] == "like @My <label>?"
    context = result["additionalContext"]
    assert set(context) == {"id", "role", "content", "source"}
    assert (uuid.UUID(context["id"]).version, context["role"]) == (4, "user")
    assert context["source"] == {
        "kind": "session-reference",
        "form": "recall",
        "version": 1,
        "references": [
            {
                "sessionId": "a",
                "label": "My <label>",
                "capturedFormatVersion": 4,
                "capturedThroughSeq": 12,
                "compacted": False,
                "originalMessages": 2,
                "retainedMessages": 2,
                "omittedMessages": 0,
                "omittedBytes": 0,
                "truncated": False,
                "inputIndex": 0,
            }
        ],
    }
    assert snapshots_in(context) == [
        {
            "sessionId": "a",
            "label": "My <label>",
            "cwd": "/w",
            "capturedThroughSeq": 12,
            "conversation": [{"role": "user", "text": "question"}, {"role": "assistant", "text": "answer"}],
        }
    ]
    assert "omissions" not in context_text(context)


async def test_a_record_of_format_0_has_every_key_but_the_format() -> None:
    store = MemoryStore([captured("a", checkpoint("c"), "m", version=0, seq=None)])
    context = answered(await make_resolver(store).prepare(params("", "a")))["additionalContext"]

    (record,) = context["source"]["references"]
    assert list(record) == RECORD_KEYS
    assert record["capturedThroughSeq"] is None
    assert record["compacted"] is True


async def test_references_keep_the_order_of_their_first_mention_and_their_first_label() -> None:
    store = MemoryStore([captured(name, name) for name in "abc"])
    content = [
        {"type": "text", "text": f"{mention('c', 'see')} {mention('a')}"},
        {"type": "text", "text": f"{mention('c', 'again')} {mention('b')}"},
    ]
    context = answered(await make_resolver(store).prepare(params(content)))["additionalContext"]

    references = context["source"]["references"]
    assert [(row["sessionId"], row["label"], row["inputIndex"]) for row in references] == [
        ("c", "see", 0),
        ("a", "a", 1),
        ("b", "b", 2),
    ]
    assert [snapshot["label"] for snapshot in snapshots_in(context)] == ["see", "a", "b"]
    assert sorted(store.captured) == ["a", "b", "c"]


async def test_the_content_given_is_never_changed() -> None:
    content = [{"type": "text", "text": mention("a"), "cache": {"x": 1}}]
    before = copy.deepcopy(content)
    prepared = await make_resolver(MemoryStore([captured("a", "m")])).prepare(params(content))

    assert content == before
    assert answered(prepared)["content"] == [{"type": "text", "text": "@a", "cache": {"x": 1}}]


async def test_an_empty_conversation_is_a_context_too() -> None:
    context = answered(await make_resolver(MemoryStore([captured("a", seq=None)])).prepare(params("", "a")))[
        "additionalContext"
    ]

    assert snapshots_in(context)[0]["conversation"] == []
    assert context["source"]["references"][0]["originalMessages"] == 0


async def test_every_context_has_an_id_of_its_own() -> None:
    resolver = make_resolver(MemoryStore([captured("a", "m")]))
    contexts = [answered(await resolver.prepare(params("", "a")))["additionalContext"]["id"] for _ in range(3)]

    assert len(set(contexts)) == 3


async def test_lone_surrogates_reach_the_answer_as_escapes() -> None:
    session_id = "half \ud800"
    prepared = await make_resolver(MemoryStore([captured(session_id, "text \udfff")])).prepare(
        params(mention(session_id, "l"))
    )

    context = answered(prepared)["additionalContext"]
    assert context["source"]["references"][0]["sessionId"] == session_id
    assert snapshots_in(context)[0]["conversation"] == [{"role": "user", "text": "text \udfff"}]


@pytest.mark.parametrize("extra", [-1, 0, 1, 1000])
@pytest.mark.parametrize("blocks", [False, True])
async def test_a_long_content_gives_the_same_as_a_short_one(extra: int, blocks: bool) -> None:
    tail = f"{mention('a', 'A')} and {mention('b')}"
    text = "x" * (INLINE_CHARACTERS + extra - len(tail)) + tail
    content = [{"type": "text", "text": text, "more": 1}, {"type": "other"}] if blocks else text
    prepared = await make_resolver(MemoryStore([captured("a"), captured("b")])).prepare(params(content))

    expected, references = parse_content(content)
    result = answered(prepared)
    assert result["content"] == expected
    assert [(row["sessionId"], row["label"]) for row in result["additionalContext"]["source"]["references"]] == [
        (reference.session_id, reference.label) for reference in references
    ]


async def test_a_long_content_is_parsed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[bool] = []
    loop = threading.get_ident()

    def watched(content: Any, references: Sequence[Any] | None, agent_id: str, limit: int) -> ReferringMessage:
        where.append(threading.get_ident() == loop)
        return normalise_message(content, references, agent_id, limit)

    monkeypatch.setattr(resolver_module, "normalise_message", watched)
    resolver = make_resolver(MemoryStore())
    await resolver.prepare(params("x" * 1000))
    await resolver.prepare(params("x" * (INLINE_CHARACTERS + 1)))
    await resolver.prepare(params([{"type": "text", "text": "x" * 40_000}] * 2))
    await resolver.prepare(params("", references=[]))

    assert where == [True, False, False, True]


async def test_a_malformed_mention_in_a_long_content_fails_as_in_a_short_one() -> None:
    failure = await failure_of(make_resolver().prepare(params("x" * INLINE_CHARACTERS + "dsh-session:AAAA")))

    assert failure.code is ErrorCode.INVALID_REFERENCE


async def test_hung_reads_do_not_keep_others_from_computing() -> None:
    lengths: list[int] = []
    async with hanging() as (stop, threads):
        store = MemoryStore([captured("a")], before_capture=lambda session_id, check: stop.wait())
        resolver = make_resolver(store, threads=threads)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(resolver.prepare, params("", "a"))
                await stop.reached()
                result = answered(await resolver.prepare(params("x" * (INLINE_CHARACTERS + 1))))
                lengths.append(len(result["content"]))
                group.cancel_scope.cancel()

    assert lengths == [INLINE_CHARACTERS + 1]


async def turns_during(call: Awaitable[object]) -> int:
    """How often the event loop comes to another task while a call runs that fails before it reads anything."""
    turns = 0
    passed: list[int] = []

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as group:
        group.start_soon(count)
        await anyio.lowlevel.checkpoint()
        turns = 0
        failure = await failure_of(call)
        passed.append(turns)
        group.cancel_scope.cancel()
        assert failure.code is ErrorCode.SELF_REFERENCE
    return passed[0]


@pytest.mark.parametrize(
    "references",
    [[{"sessionId": "a", "label": "\u200b" * 500_000}], [{"sessionId": "a"}] * 100_000],
    ids=["long label", "many elements"],
)
async def test_large_references_do_not_stop_the_event_loop(references: list[Any]) -> None:
    call = make_resolver().prepare(params("", references=[*references, {"sessionId": "agent"}]))

    assert await turns_during(call) > 0


async def test_many_short_messages_do_not_stop_the_event_loop() -> None:
    messages = [of_user("@[ dsh-session: " * 2000) for _ in range(50)]
    call = make_resolver().prepare_messages(PrepareMessagesParams("agent", [*messages, of_user(mention("agent"))]))

    assert await turns_during(call) > 0


async def test_many_empty_blocks_do_not_stop_the_event_loop() -> None:
    blocks = [{"type": "text", "text": ""}] * 100_000
    call = make_resolver().prepare(params([*blocks, {"type": "text", "text": mention("agent")}]))

    assert await turns_during(call) > 0


# Failures


@pytest.mark.parametrize("content", ["@[x](dsh-session:?)", [{"type": "text", "text": "dsh-session:eA"}]])
async def test_a_malformed_mention_is_an_invalid_reference_and_reads_nothing(content: Any) -> None:
    store = MemoryStore()
    failure = await failure_of(make_resolver(store).prepare(params(content)))

    assert failure.number == -32012
    assert failure.data == {"code": "SESSION_REFERENCE_INVALID_REFERENCE"}
    assert store.captured == []


@pytest.mark.parametrize("element", [None, "a", {}, {"sessionId": 5}, {"sessionId": "b", "label": None}])
async def test_a_malformed_reference_is_an_invalid_reference_and_reads_nothing(element: Any) -> None:
    store = MemoryStore([captured("a")])
    failure = await failure_of(make_resolver(store).prepare(params("", references=[{"sessionId": "a"}, element])))

    assert failure.data == {"code": "SESSION_REFERENCE_INVALID_REFERENCE", "inputIndex": 1}
    assert store.captured == []


@pytest.mark.parametrize("agent_id", ["agent", "😀", "\ud83d\ude00"])
async def test_a_reference_to_the_target_is_a_self_reference(agent_id: str) -> None:
    store = MemoryStore([captured("a")])
    shown = "😀" if agent_id != "agent" else agent_id
    for call in (
        params(f"{mention('a')} {mention(shown)}", agent_id=agent_id),
        params("", "a", shown, agent_id=agent_id),
    ):
        failure = await failure_of(make_resolver(store).prepare(call))

        assert failure.number == -32013
        assert failure.data == {"code": "SESSION_REFERENCE_SELF_REFERENCE", "sessionId": shown, "inputIndex": 1}
    assert store.captured == []


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_more_sessions_than_the_setting_allows_are_too_many(limit: int) -> None:
    store = MemoryStore([captured(name) for name in "abcd"])
    resolver = make_resolver(store, settings=Settings(max_references=limit))
    failure = await failure_of(resolver.prepare(params("", *"abcd"[: limit + 1])))

    assert failure.number == -32014
    assert failure.data == {"code": "SESSION_REFERENCE_TOO_MANY", "limit": limit, "actual": limit + 1}
    assert store.captured == []
    allowed = answered(await resolver.prepare(params("", *"abcd"[:limit])))
    assert len(allowed["additionalContext"]["source"]["references"]) == limit


@pytest.mark.parametrize("reason", list(ReadFailedReason))
async def test_a_source_that_cannot_be_read_fails_the_call_with_its_reason_and_place(reason: ReadFailedReason) -> None:
    def fail(session_id: str, check: CheckCancelled) -> None:
        if session_id == "bad":
            raise read_failed(reason, session_id)

    store = MemoryStore([captured("good"), captured("bad")], before_capture=fail)
    failure = await failure_of(make_resolver(store).prepare(params("", "good", "bad")))

    assert failure.number == -32015
    retryable = {"retryable": True} if reason is ReadFailedReason.IO else {}
    assert failure.data == {
        "code": "SESSION_REFERENCE_READ_FAILED",
        "reason": str(reason),
        "sessionId": "bad",
        "inputIndex": 1,
        **retryable,
    }


async def test_a_failure_of_a_store_keeps_its_facts() -> None:
    def fail(session_id: str, check: CheckCancelled) -> None:
        raise read_failed(ReadFailedReason.TOO_LARGE, session_id, limit=10, actual=11)

    failure = await failure_of(make_resolver(MemoryStore(before_capture=fail)).prepare(params("", "a")))

    assert (failure.facts.limit, failure.facts.actual) == (10, 11)


async def test_a_failure_of_a_store_that_names_no_session_tells_its_place_all_the_same() -> None:
    def fail(session_id: str, check: CheckCancelled) -> None:
        raise read_failed(ReadFailedReason.CORRUPT)

    resolver = make_resolver(MemoryStore(before_capture=fail))
    failure = await failure_of(
        resolver.prepare_messages(PrepareMessagesParams("agent", [of_user("none"), of_user(mention("a"))]))
    )

    assert failure.data == {
        "code": "SESSION_REFERENCE_READ_FAILED",
        "reason": "corrupt",
        "sessionId": "a",
        "inputIndex": 0,
        "messageIndex": 1,
    }


async def test_fixed_fields_that_do_not_fit_exceed_the_budget() -> None:
    spills = MemorySpills()
    store = MemoryStore([captured("a"), captured("b", "text " * 100)])
    empty = len(tag_safe({**SNAPSHOT, "conversation": [{"role": "user", "text": ""}]}).encode())
    resolver = make_resolver(store, settings=Settings(max_reference_bytes=empty - 1), spills=spills)
    failure = await failure_of(resolver.prepare(params("", "a", "b")))

    assert failure.number == -32016
    assert failure.data == {
        "code": "SESSION_REFERENCE_BUDGET_EXCEEDED",
        "sessionId": "b",
        "inputIndex": 1,
        "limit": empty - 1,
        "actual": empty,
    }
    assert spills.saved == []


def test_a_cancelled_request_is_told_who_cancelled_it() -> None:
    assert (cancelled().number, cancelled().data) == (-32800, {"code": "SESSION_REFERENCE_CANCELLED"})
    by_server = cancelled(by_server=True)
    assert (by_server.number, by_server.data) == (-32802, {"code": "SESSION_REFERENCE_CANCELLED", "retryable": True})


# Budgets


async def size_of_snapshot(resolver: Resolver, call: PrepareParams) -> int:
    """Serialised bytes of the one snapshot that is shown of a session much larger than any budget here."""
    context = answered(await resolver.prepare(call))["additionalContext"]
    assert context["source"]["references"][0]["truncated"]
    return len(tag_safe(snapshots_in(context)[0]).encode())


def resolver_of_large_session(**settings: Any) -> tuple[Resolver, MemoryStore]:
    store = MemoryStore([captured("a", "x" * 1_500_000)])
    return make_resolver(store, settings=Settings(**settings)), store


def catalogue_at(path: Path) -> Path:
    path.write_text(
        '[[models]]\nprovider = "p"\nmodel = "m"\ncontextWindow = 100_000\n[[models]]\nprovider = "p"\nmodel = "none"\n'
    )
    return path


async def test_without_a_route_the_default_budget_counts() -> None:
    resolver, _ = resolver_of_large_session()

    assert await size_of_snapshot(resolver, params("", "a")) == 65_536


async def test_a_configured_budget_counts_exactly_whatever_the_route_and_without_the_catalogue() -> None:
    resolver, _ = resolver_of_large_session(max_reference_bytes=5000, model_catalogue=Path("/nowhere"))
    resolver.assembled(AssembledParams("agent", "p", "m", 1_000_000))

    assert await size_of_snapshot(resolver, params("", "a", route=Route("p", "m"))) == 5000


async def test_the_route_in_the_params_counts_while_none_was_assembled() -> None:
    resolver, _ = resolver_of_large_session(reference_context_fraction=0.25)
    resolver.assembled(AssembledParams("other", context_window=900_000))

    assert await size_of_snapshot(resolver, params("", "a", route=Route(context_window=100_000))) == 100_000


async def test_the_last_assembled_route_of_the_agent_wins_over_the_params() -> None:
    resolver, _ = resolver_of_large_session(reference_context_fraction=0.25)
    resolver.assembled(AssembledParams("agent", context_window=70_000))
    resolver.assembled(AssembledParams("agent", context_window=80_000))

    assert await size_of_snapshot(resolver, params("", "a", route=Route(context_window=100_000))) == 80_000


async def test_an_empty_assembled_route_counts_as_assembled() -> None:
    resolver, _ = resolver_of_large_session()
    resolver.assembled(AssembledParams("agent", context_window=1_000_000))
    resolver.assembled(AssembledParams("agent"))

    assert await size_of_snapshot(resolver, params("", "a", route=Route(context_window=1_000_000))) == 65_536


async def test_an_agent_id_in_two_halves_is_the_same_agent_when_assembled_and_when_preparing() -> None:
    resolver, _ = resolver_of_large_session(reference_context_fraction=0.25)
    resolver.assembled(AssembledParams("\ud83d\ude00", context_window=80_000))

    assert await size_of_snapshot(resolver, params("", "a", agent_id="\ud83d\ude00")) == 80_000


@pytest.mark.parametrize(
    ("route", "budget"),
    [
        (Route("p", "m"), 200_000),
        (Route("p", "none"), 65_536),
        (Route("p", "unknown"), 65_536),
        (Route("p"), 65_536),
        (Route(None, "m"), 65_536),
        (Route("p", "m", 50_000), 100_000),
        (Route("p", "unknown", 50_000), 100_000),
    ],
)
async def test_the_catalogue_tells_the_window_that_a_route_does_not(route: Route, budget: int, tmp_path: Path) -> None:
    catalogue = catalogue_at(tmp_path / "models.toml")
    resolver, _ = resolver_of_large_session(model_catalogue=catalogue, reference_context_fraction=0.5)

    assert await size_of_snapshot(resolver, params("", "a", route=route)) == budget


@pytest.mark.parametrize("route", [None, Route(), Route("p"), Route(None, "m"), Route("p", "m", 5)])
async def test_the_catalogue_is_not_read_unless_a_model_is_looked_up(route: Route | None) -> None:
    resolver, _ = resolver_of_large_session(model_catalogue=Path("/nowhere/models.toml"))

    assert await size_of_snapshot(resolver, params("", "a", route=route)) == 65_536


@pytest.mark.parametrize("with_messages", [False, True])
async def test_a_catalogue_that_fails_fails_the_call_before_anything_is_read(
    with_messages: bool, tmp_path: Path
) -> None:
    resolver, store = resolver_of_large_session(model_catalogue=tmp_path / "missing.toml")
    call: Awaitable[object] = resolver.prepare(params("", "a", route=Route("p", "m")))
    if with_messages:
        await failure_of(call)
        call = resolver.prepare_messages(PrepareMessagesParams("agent", [of_user(mention("a"))], route=Route("p", "m")))
    failure = await failure_of(call)

    assert failure.number == -32015
    assert (failure.facts.code, failure.reason) == (ErrorCode.READ_FAILED, ReadFailedReason.MODEL_LOOKUP)
    assert store.captured == []


async def test_references_are_checked_before_the_catalogue_is_read() -> None:
    resolver, _ = resolver_of_large_session(model_catalogue=Path("/nowhere/models.toml"))
    failure = await failure_of(resolver.prepare(params("", *"abcd", route=Route("p", "m"))))

    assert failure.code is ErrorCode.TOO_MANY


async def test_each_reference_has_the_whole_budget() -> None:
    store = MemoryStore([captured(name, "x" * 2000) for name in "abc"])
    context = answered(
        await make_resolver(store, settings=Settings(max_reference_bytes=1000)).prepare(params("", *"abc"))
    )["additionalContext"]

    assert [len(tag_safe(snapshot).encode()) for snapshot in snapshots_in(context)] == [1000] * 3


# Reading


async def test_all_sources_are_read_at_the_same_time_and_each_once() -> None:
    barrier = threading.Barrier(3)
    store = MemoryStore(
        [captured(name) for name in "abc"], before_capture=lambda session_id, check: ignore(barrier.wait(5))
    )
    with anyio.fail_after(10):
        await make_resolver(store).prepare(params("", *"abc", *"abc"))

    assert sorted(store.captured) == ["a", "b", "c"]


def ignore(_: object) -> None:
    """Drop a value."""


async def test_a_truncated_source_is_read_once_also_for_its_spill() -> None:
    store, spills = MemoryStore([long_session("a")]), MemorySpills()
    await make_resolver(store, settings=SMALL, spills=spills).prepare(params("", "a"))

    assert store.captured == ["a"]
    assert len(spills.saved) == 1


async def test_one_bad_source_fails_all_at_once_and_cancels_the_others_however_they_hang() -> None:
    interrupted: list[str] = []
    barrier, finished = threading.Barrier(3), threading.Semaphore(0)
    spills = MemorySpills()
    async with hanging() as (stop, threads):

        def hang(session_id: str, check: CheckCancelled) -> None:
            barrier.wait(5)
            if session_id == "bad":
                raise read_failed(ReadFailedReason.CORRUPT, session_id)
            stop.wait()
            try:
                check()
            except BaseException:
                interrupted.append(session_id)
                raise
            finally:
                finished.release()

        store = MemoryStore([long_session("x"), long_session("y")], before_capture=hang)
        failure = await failure_of(
            make_resolver(store, settings=SMALL, spills=spills, threads=threads).prepare(params("", "x", "bad", "y"))
        )
        assert not stop.left.is_set()
        stop.open()
        for _ in range(2):
            assert await anyio.to_thread.run_sync(functools.partial(finished.acquire, timeout=5))

    assert failure.data == {
        "code": "SESSION_REFERENCE_READ_FAILED",
        "reason": "corrupt",
        "sessionId": "bad",
        "inputIndex": 1,
    }
    assert sorted(interrupted) == ["x", "y"]
    assert spills.saved == []


async def test_of_several_bad_sources_the_first_to_fail_is_the_answer() -> None:
    async with hanging() as (stop, threads):

        def fail(session_id: str, check: CheckCancelled) -> None:
            if session_id == "late":
                stop.wait()
            raise read_failed(ReadFailedReason.CORRUPT, session_id)

        failure = await failure_of(
            make_resolver(MemoryStore(before_capture=fail), threads=threads).prepare(params("", "late", "early"))
        )

    assert (failure.facts.session_id, failure.facts.input_index) == ("early", 1)


async def test_a_source_is_looked_for_in_every_store_in_order() -> None:
    one, two = MemoryStore([captured("a", "one")]), MemoryStore([captured("a", "two"), captured("b", "two")])
    context = answered(await make_resolver(one, two).prepare(params("", "a", "b")))["additionalContext"]

    assert [snapshot["conversation"][0]["text"] for snapshot in snapshots_in(context)] == ["one", "two"]
    assert (sorted(one.captured), two.captured) == (["a", "b"], ["b"])


async def test_an_unknown_source_is_not_found() -> None:
    failure = await failure_of(make_resolver(MemoryStore(), MemoryStore()).prepare(params("", "nobody")))

    assert failure.data == {
        "code": "SESSION_REFERENCE_READ_FAILED",
        "reason": "not-found",
        "sessionId": "nobody",
        "inputIndex": 0,
    }


async def test_what_was_noticed_while_reading_is_told_beside_the_context() -> None:
    store = MemoryStore(
        [
            captured("a", "m", diagnostics=[Diagnostic("torn-tail", "1 line"), Diagnostic("skipped-lines", "2 lines")]),
            captured("b", "m"),
        ]
    )
    result = answered(await make_resolver(store).prepare(params("", *"ba")))

    assert list(result) == ["content", "additionalContext", "diagnostics"]
    assert result["diagnostics"] == [
        {"sessionId": "a", "kind": "torn-tail", "detail": "1 line"},
        {"sessionId": "a", "kind": "skipped-lines", "detail": "2 lines"},
    ]
    assert list(result["additionalContext"]["source"]["references"][1]) == RECORD_KEYS


class ToldThreads(WorkerThreads):
    """Sets an event for each session once the event loop has what was read of it."""

    def __init__(self, names: str) -> None:
        super().__init__()
        self.ended = {name: threading.Event() for name in names}

    async def run(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Run as ever, then tell."""
        result = await super().run(function, *arguments)
        self.ended["".join(map(str, arguments))].set()
        return result


async def test_diagnostics_come_in_the_order_of_the_references_whichever_read_ends_first() -> None:
    threads = ToldThreads("abc")

    def last_first(session_id: str, check: CheckCancelled) -> None:
        if session_id != "c":
            assert threads.ended[{"a": "b", "b": "c"}[session_id]].wait(5)

    store = MemoryStore(
        [captured(name, "m", diagnostics=[Diagnostic("torn-tail", name)]) for name in "abc"], before_capture=last_first
    )
    with anyio.fail_after(10):
        result = answered(await make_resolver(store, threads=threads).prepare(params("", *"abc")))

    assert [row["sessionId"] for row in result["diagnostics"]] == ["a", "b", "c"]


# Spills


async def test_a_truncated_source_is_saved_whole_for_the_target_before_the_answer() -> None:
    capture = long_session("a", cwd="/w", seq=9)
    spills = MemorySpills()
    prepared = await make_resolver(MemoryStore([capture]), settings=SMALL, spills=spills).prepare(
        params(mention("a", "Label"), agent_id="target")
    )

    ((owner, number, transcript),) = spills.saved
    assert (owner, number) == ("target", 1)
    assert transcript == b"".join(render_transcript(capture, "Label", never_cancelled))
    context = answered(prepared)["additionalContext"]
    (record,) = context["source"]["references"]
    assert notices_in(context) == [
        {
            "sessionId": "a",
            "capturedThroughSeq": 9,
            "omittedMessages": record["omittedMessages"],
            "omittedBytes": record["omittedBytes"],
            "fullSnapshot": {
                "status": "saved",
                "locator": "memory:1",
                "bytes": len(transcript),
                "retrievalHint": "ask for it",
            },
        }
    ]
    assert record["truncated"]
    assert (record["originalMessages"], record["retainedMessages"], record["omittedMessages"]) == (2, 1, 1)


async def test_spills_are_numbered_by_their_reference_and_intact_ones_leave_gaps() -> None:
    spills = MemorySpills()
    store = MemoryStore([long_session("a"), captured("b", "short"), long_session("c")])
    context = answered(await make_resolver(store, settings=SMALL, spills=spills).prepare(params("", *"abc")))[
        "additionalContext"
    ]

    assert sorted(number for _, number, _ in spills.saved) == [1, 3]
    assert [(row["sessionId"], row["fullSnapshot"]["locator"]) for row in notices_in(context)] == [
        ("a", "memory:1"),
        ("c", "memory:3"),
    ]


async def test_spills_are_saved_at_the_same_time() -> None:
    barrier = threading.Barrier(3)
    spills = MemorySpills(lambda number: ignore(barrier.wait(5)))
    store = MemoryStore([long_session(name) for name in "abc"])
    with anyio.fail_after(10):
        await make_resolver(store, settings=SMALL, spills=spills).prepare(params("", *"abc"))

    assert sorted(number for _, number, _ in spills.saved) == [1, 2, 3]


async def test_nothing_is_saved_for_what_fits() -> None:
    spills = MemorySpills()
    await make_resolver(MemoryStore([captured("a", "short")]), spills=spills).prepare(params("", "a"))

    assert spills.saved == []


def full_snapshots(prepared: Prepared[PrepareResult]) -> list[Any]:
    return [row["fullSnapshot"] for row in notices_in(answered(prepared)["additionalContext"])]


async def test_without_a_spill_store_the_notice_says_so() -> None:
    prepared = await make_resolver(MemoryStore([long_session("a")]), settings=SMALL).prepare(params("", "a"))

    assert full_snapshots(prepared) == [{"status": "unavailable", "reason": "storage-not-configured"}]


async def test_a_save_that_fails_never_fails_the_call(caplog: pytest.LogCaptureFixture) -> None:
    def fail(number: int) -> None:
        if number == 1:
            raise OSError(28, "No space left on device", "/secret/path")

    spills = MemorySpills(fail)
    store = MemoryStore([long_session("a"), long_session("b")])
    prepared = await make_resolver(store, settings=SMALL, spills=spills).prepare(params("", "a", "b"))

    first, second = full_snapshots(prepared)
    assert first == {"status": "unavailable", "reason": "save-failed"}
    assert second["status"] == "saved"
    (record,) = caplog.records
    assert "No space left" in record.getMessage()


async def test_a_spill_directory_that_cannot_be_used_never_fails_the_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    spills = LocalSpillStore(tmp_path / "file" / "spills")
    prepared = await make_resolver(MemoryStore([long_session("a")]), settings=SMALL, spills=spills).prepare(
        params("", "a")
    )

    assert full_snapshots(prepared) == [{"status": "unavailable", "reason": "save-failed"}]


async def test_a_saved_snapshot_can_be_read_at_its_locator(tmp_path: Path) -> None:
    capture = long_session("a")
    spills = LocalSpillStore(tmp_path)
    prepared = await make_resolver(MemoryStore([capture]), settings=SMALL, spills=spills).prepare(params("", "a"))

    (found,) = full_snapshots(prepared)
    (path,) = files_below(tmp_path)
    assert found["locator"] == str(path)
    written = await anyio.Path(path).read_bytes()
    assert written == b"".join(render_transcript(capture, "a", never_cancelled))
    assert found["bytes"] == len(written)


@pytest.mark.parametrize("configured", [True, False])
async def test_a_preview_differs_only_in_that_nothing_is_saved(configured: bool) -> None:
    spills = MemorySpills()
    store = MemoryStore([long_session("a"), captured("b", "short", diagnostics=[Diagnostic("torn-tail", "1 line")])])
    resolver = make_resolver(store, settings=SMALL, spills=spills if configured else None)
    preview = answered(await resolver.prepare(params(f"{mention('a')} {mention('b')}", preview=True)))
    assert spills.saved == []
    whole = answered(await resolver.prepare(params(f"{mention('a')} {mention('b')}", preview=False)))

    (notice,) = notices_in(preview["additionalContext"])
    assert notice["fullSnapshot"] == {"status": "unavailable", "reason": "preview"}
    for result in (preview, whole):
        context = result["additionalContext"]
        context["id"] = "id"
        context["content"][0]["text"] = context_text(context).rpartition("\n")[0]
    assert preview == whole


async def test_an_answer_that_is_lost_is_taken_back(tmp_path: Path) -> None:
    store, spills = MemoryStore([long_session("a"), long_session("b")]), LocalSpillStore(tmp_path)
    resolver = make_resolver(store, settings=SMALL, spills=spills)
    kept = await resolver.prepare(params("", "a"))
    lost = await resolver.prepare(params("", "a", "b"))
    assert len(files_below(tmp_path)) == 3
    assert lost.discard is not None
    await lost.discard()
    await lost.discard()

    assert files_below(tmp_path) == [Path(full_snapshots(kept)[0]["locator"])]


async def test_a_removal_that_hangs_does_not_hold_up_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    resolver = make_resolver(MemoryStore([long_session("a")]), settings=SMALL, spills=LocalSpillStore(tmp_path))
    prepared = await resolver.prepare(params("", "a"))
    with Stop() as stop:

        def hang(paths: Iterable[Path]) -> None:
            stop.wait()

        monkeypatch.setattr(resolver_module, "remove_spills", hang)
        monkeypatch.setattr(resolver_module, "DISCARD_SECONDS", 0.01)
        with anyio.fail_after(5):
            assert prepared.discard is not None
            await prepared.discard()
        assert stop.arrived == 1


# Several messages


async def test_each_context_stands_right_after_its_message_and_all_else_comes_back_as_it_came() -> None:
    store = MemoryStore([captured(name, name) for name in "abc"])
    messages: list[Any] = [
        {"role": "system", "content": mention("a"), "source": {"kind": "system"}},
        of_user("no reference", id="plain"),
        of_user(f"see {mention('a', 'A')}", id="one", more={"x": 1}),
        {"role": "assistant", "content": [{"type": "text", "text": mention("b")}], "source": {"kind": "model"}},
        of_user([{"type": "text", "text": f"{mention('b')}{mention('c')}", "y": 2}, {"type": "image"}], id="two"),
    ]
    before = copy.deepcopy(messages)
    prepared = await make_resolver(store).prepare_messages(PrepareMessagesParams("agent", messages))

    given = prepared.result.messages
    assert [given[0], given[1], given[4]] == [messages[0], messages[1], messages[3]]
    assert all(came is given[place] for came, place in ((messages[0], 0), (messages[1], 1), (messages[3], 4)))
    result = answered_messages(prepared)
    assert list(result) == ["messages"]
    assert result["messages"][2] == of_user("see @A", id="one", more={"x": 1})
    assert result["messages"][5] == of_user([{"type": "text", "text": "@b@c", "y": 2}, {"type": "image"}], id="two")
    assert list(result["messages"][2]) == list(messages[2])
    contexts = [result["messages"][3], result["messages"][6]]
    assert [[row["sessionId"] for row in context["source"]["references"]] for context in contexts] == [
        ["a"],
        ["b", "c"],
    ]
    assert [[snapshot["sessionId"] for snapshot in snapshots_in(context)] for context in contexts] == [
        ["a"],
        ["b", "c"],
    ]
    assert len(result["messages"]) == 7
    assert messages == before


@pytest.mark.parametrize(
    "message",
    [
        None,
        5,
        mention("a"),
        [mention("a")],
        {},
        {"content": mention("a")},
        {"content": mention("a"), "source": None},
        {"content": mention("a"), "source": "user"},
        {"content": mention("a"), "source": {}},
        {"content": mention("a"), "source": {"kind": "User"}},
        {"content": mention("a"), "source": {"kind": ["user"]}},
        {"content": mention("a"), "source": {"kind": "plugin"}, "role": "user"},
        {"content": mention("a"), "source": {"kind": "session-reference", "form": "recall"}, "role": "user"},
        {"source": {"kind": "user"}},
        {"source": {"kind": "user"}, "content": None},
        {"source": {"kind": "user"}, "content": {"type": "text", "text": mention("a")}},
        {"source": {"kind": "user"}, "content": []},
    ],
)
async def test_a_message_that_is_not_of_the_user_or_has_no_text_is_the_same_object(message: Any) -> None:
    store = MemoryStore()
    prepared = await make_resolver(store).prepare_messages(PrepareMessagesParams("agent", [message]))

    assert len(prepared.result.messages) == 1
    assert prepared.result.messages[0] is message
    assert store.captured == []


async def test_a_source_with_further_members_is_still_the_users() -> None:
    message = of_user(mention("a"), source={"kind": "user", "rpcId": 5}, role="developer")
    prepared = await make_resolver(MemoryStore([captured("a")])).prepare_messages(
        PrepareMessagesParams("agent", [message])
    )

    assert len(prepared.result.messages) == 2


async def test_each_distinct_source_is_read_once_over_all_messages_and_told_of_once() -> None:
    barrier = threading.Barrier(4)
    store = MemoryStore(
        [captured(name, name, diagnostics=[Diagnostic("torn-tail", name)]) for name in "abcd"],
        before_capture=lambda session_id, check: ignore(barrier.wait(5)),
    )
    messages = [of_user("".join(map(mention, names))) for names in ("abc", "bcd", "a")]
    with anyio.fail_after(10):
        prepared = await make_resolver(store).prepare_messages(PrepareMessagesParams("agent", messages))

    assert sorted(store.captured) == ["a", "b", "c", "d"]
    result = answered_messages(prepared)
    assert sorted(row["sessionId"] for row in result["diagnostics"]) == ["a", "b", "c", "d"]
    references = [message["source"]["references"] for message in result["messages"][1::2]]
    assert [[row["sessionId"] for row in rows] for rows in references] == [["a", "b", "c"], ["b", "c", "d"], ["a"]]
    assert [[row["inputIndex"] for row in rows] for rows in references] == [[0, 1, 2], [0, 1, 2], [0]]


async def test_each_message_shows_a_session_under_its_own_label() -> None:
    messages = [of_user(mention("a", "first")), of_user(mention("a", "second"))]
    prepared = await make_resolver(MemoryStore([captured("a")])).prepare_messages(
        PrepareMessagesParams("agent", messages)
    )

    contexts = answered_messages(prepared)["messages"][1::2]
    assert [snapshots_in(context)[0]["label"] for context in contexts] == ["first", "second"]
    assert [context["source"]["references"][0]["label"] for context in contexts] == ["first", "second"]
    assert contexts[0]["id"] != contexts[1]["id"]


async def test_every_message_spills_for_itself() -> None:
    spills = MemorySpills()
    store = MemoryStore([long_session("a"), captured("b")])
    messages = [of_user(mention("a", "first")), of_user(mention("b") + mention("a", "second"))]
    await make_resolver(store, settings=SMALL, spills=spills).prepare_messages(PrepareMessagesParams("agent", messages))

    capture = store.captures["a"]
    assert sorted(spills.saved) == sorted(
        ("agent", number, b"".join(render_transcript(capture, label, never_cancelled)))
        for number, label in ((1, "first"), (2, "second"))
    )


async def test_no_messages_or_no_references_give_the_messages_alone() -> None:
    store = MemoryStore()
    resolver = make_resolver(store, settings=Settings(model_catalogue=Path("/nowhere")))
    none = await resolver.prepare_messages(PrepareMessagesParams("agent", [], route=Route("p", "m")))
    some = await resolver.prepare_messages(PrepareMessagesParams("agent", [of_user("x")], route=Route("p", "m")))

    assert answered_messages(none) == {"messages": []}
    assert answered_messages(some) == {"messages": [of_user("x")]}
    assert store.captured == []


@pytest.mark.parametrize(
    ("content", "data"),
    [
        ("dsh-session:AAAA", {"code": "SESSION_REFERENCE_INVALID_REFERENCE"}),
        (
            mention("a") + mention("agent"),
            {"code": "SESSION_REFERENCE_SELF_REFERENCE", "sessionId": "agent", "inputIndex": 1},
        ),
        ("".join(map(mention, "abcd")), {"code": "SESSION_REFERENCE_TOO_MANY", "limit": 3, "actual": 4}),
    ],
)
async def test_a_message_that_cannot_be_prepared_fails_the_call_with_its_place_and_reads_nothing(
    content: str, data: dict[str, Any]
) -> None:
    store = MemoryStore([captured(name) for name in "abcd"])
    messages = [of_user(mention("a")), {"role": "assistant"}, of_user(content), of_user("dsh-session:AAAA")]
    failure = await failure_of(make_resolver(store).prepare_messages(PrepareMessagesParams("agent", messages)))

    assert failure.data == {**data, "messageIndex": 2}
    assert store.captured == []


async def test_a_bad_source_of_one_message_fails_all_with_the_place_of_its_first_mention(tmp_path: Path) -> None:
    store = MemoryStore([long_session("a")])
    messages = [of_user(mention("a")), of_user("x"), of_user(mention("a") + mention("bad")), of_user(mention("bad"))]
    resolver = make_resolver(store, settings=SMALL, spills=LocalSpillStore(tmp_path))
    failure = await failure_of(resolver.prepare_messages(PrepareMessagesParams("agent", messages)))

    assert failure.data == {
        "code": "SESSION_REFERENCE_READ_FAILED",
        "reason": "not-found",
        "sessionId": "bad",
        "inputIndex": 1,
        "messageIndex": 2,
    }
    assert files_below(tmp_path) == []


async def test_a_source_that_does_not_fit_fails_all_messages_and_saves_nothing() -> None:
    spills = MemorySpills()
    store = MemoryStore([long_session("a"), captured("b", cwd="/" + "x" * 500)])
    messages = [of_user(mention("a")), of_user(mention("a") + mention("b"))]
    failure = await failure_of(
        make_resolver(store, settings=SMALL, spills=spills).prepare_messages(PrepareMessagesParams("agent", messages))
    )

    assert failure.data == {
        "code": "SESSION_REFERENCE_BUDGET_EXCEEDED",
        "sessionId": "b",
        "inputIndex": 1,
        "messageIndex": 1,
        "limit": 400,
        "actual": len(tag_safe({**SNAPSHOT, "cwd": "/" + "x" * 500}).encode()),
    }
    assert spills.saved == []


async def test_messages_have_the_route_of_their_agent_too() -> None:
    resolver, _ = resolver_of_large_session(reference_context_fraction=0.25)
    resolver.assembled(AssembledParams("agent", context_window=80_000))
    prepared = await resolver.prepare_messages(
        PrepareMessagesParams("agent", [of_user(mention("a"))], route=Route(context_window=90_000))
    )

    assert len(tag_safe(snapshots_in(answered_messages(prepared)["messages"][1])[0]).encode()) == 80_000


# Cancellation


class Canceller:
    """Cancels a call from one of its threads, at the point where the test has put it."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.times = 0
        self.threads = WorkerThreads()

    def __call__(self) -> None:
        self.times += 1
        anyio.from_thread.run_sync(self.scope.cancel)

    async def run(self, call: Callable[[], Awaitable[Result]]) -> Result | None:
        """The result of the call, None if it was cancelled."""
        result: Result | None = None
        with anyio.fail_after(5), self.scope:
            result = await call()
        assert self.times > 0
        await all_returned(self.threads)
        return result


class WatchedSpills:
    """The local store, with something to do before, during and after a save, and an event for its end."""

    def __init__(self, root: Path) -> None:
        self.before: Callable[[], None] = never_cancelled
        self.between: Callable[[], None] = never_cancelled
        self.after: Callable[[], None] = never_cancelled
        self.saves = 0
        self.ended = threading.Event()
        self._store = LocalSpillStore(root)

    def save(self, owner_id: str, number: int, content: Iterable[bytes], transaction: SpillTransaction) -> SavedSpill:
        """Save as the local store does."""
        self.saves += 1
        try:
            self.before()
            saved = self._store.save(owner_id, number, self._watched(content), transaction)
            self.after()
            return saved
        finally:
            self.ended.set()

    def _watched(self, content: Iterable[bytes]) -> Iterator[bytes]:
        for piece in content:
            yield piece
            self.between()


async def prepare_one(resolver: Resolver) -> Prepared[PrepareResult]:
    return await resolver.prepare(params("", "a", route=Route("p", "m")))


async def prepare_several(resolver: Resolver) -> Prepared[PrepareMessagesResult]:
    messages = [of_user("x"), of_user(mention("a"))]
    return await resolver.prepare_messages(PrepareMessagesParams("agent", messages, route=Route("p", "m")))


Call = Callable[[Resolver], Coroutine[Any, Any, Prepared[Any]]]
calls = pytest.mark.parametrize("call", [prepare_one, prepare_several])


@calls
async def test_a_cancel_while_the_catalogue_is_read_reads_no_source(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    canceller = Canceller()

    def cancelled_lookup(catalogue: ModelCatalogue, provider: str, model: str) -> int | None:
        canceller()
        return None

    monkeypatch.setattr(ModelCatalogue, "context_window", cancelled_lookup)
    store, spills = MemoryStore([captured("a", "x" * 100_000)]), WatchedSpills(tmp_path)
    resolver = make_resolver(
        store, settings=Settings(model_catalogue=tmp_path / "models"), spills=spills, threads=canceller.threads
    )

    assert await canceller.run(lambda: call(resolver)) is None
    assert store.captured == []
    assert spills.saves == 0


@calls
async def test_a_cancel_while_a_source_is_read_saves_nothing_also_when_the_read_completes(
    call: Call, tmp_path: Path
) -> None:
    canceller, spills = Canceller(), WatchedSpills(tmp_path)
    store = MemoryStore([long_session("a")], before_capture=lambda session_id, check: canceller())
    resolver = make_resolver(store, settings=SMALL, spills=spills, threads=canceller.threads)

    assert await canceller.run(lambda: call(resolver)) is None
    assert spills.saves == 0
    assert files_below(tmp_path) == []


@calls
async def test_a_cancel_while_the_budget_is_fitted_interrupts_it_and_saves_nothing(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    canceller, spills = Canceller(), WatchedSpills(tmp_path)
    fitted: list[object] = []

    def cancelled_retain(capture: Capture, label: str, budget: int, check: CheckCancelled) -> object:
        canceller()
        fitted.append(retain(capture, label, budget, check))
        return fitted[-1]

    monkeypatch.setattr(snapshots_module, "retain", cancelled_retain)
    resolver = make_resolver(MemoryStore([long_session("a")]), settings=SMALL, spills=spills, threads=canceller.threads)

    assert await canceller.run(lambda: call(resolver)) is None
    assert fitted == []
    assert spills.saves == 0
    assert files_below(tmp_path) == []


@calls
@pytest.mark.parametrize("point", ["before", "between", "after"])
async def test_a_cancel_before_during_or_after_a_save_leaves_no_spill(call: Call, point: str, tmp_path: Path) -> None:
    canceller, spills = Canceller(), WatchedSpills(tmp_path)
    setattr(spills, point, canceller)
    resolver = make_resolver(MemoryStore([long_session("a")]), settings=SMALL, spills=spills, threads=canceller.threads)

    assert await canceller.run(lambda: call(resolver)) is None
    await happened(spills.ended)
    assert spills.saves == 1
    assert files_below(tmp_path) == []


@calls
async def test_a_cancel_after_the_saves_leaves_no_spill_once_the_answer_is_taken_back(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    canceller, spills = Canceller(), WatchedSpills(tmp_path)

    def cancelled_render(objects: Sequence[dict[str, object]], notices: Sequence[OmissionNotice]) -> str:
        canceller()
        return render_context(objects, notices)

    monkeypatch.setattr(resolver_module, "render_context", cancelled_render)
    resolver = make_resolver(MemoryStore([long_session("a")]), settings=SMALL, spills=spills, threads=canceller.threads)
    prepared = await canceller.run(lambda: call(resolver))
    assert spills.saves == 1
    if prepared is not None:
        assert prepared.discard is not None
        await prepared.discard()

    assert files_below(tmp_path) == []


@calls
async def test_a_cancel_while_a_read_hangs_is_obeyed_at_once_and_nothing_is_saved_later(
    call: Call, tmp_path: Path
) -> None:
    spills = WatchedSpills(tmp_path)
    outcome: list[object] = []
    async with hanging() as (stop, threads):
        store = MemoryStore([long_session("a")], before_capture=lambda session_id, check: stop.wait())
        resolver = make_resolver(store, settings=SMALL, spills=spills, threads=threads)

        async def run() -> None:
            outcome.append(await call(resolver))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await stop.reached()
                group.cancel_scope.cancel()
        assert threads.busy == 1
        stop.open()
        await happened(stop.left)

    assert outcome == []
    assert spills.saves == 0
    assert files_below(tmp_path) == []


@calls
async def test_a_cancel_while_a_save_hangs_is_obeyed_at_once_and_what_it_saves_later_is_removed(
    call: Call, tmp_path: Path
) -> None:
    spills = WatchedSpills(tmp_path)
    async with hanging() as (stop, threads):
        spills.between = stop.wait
        resolver = make_resolver(MemoryStore([long_session("a")]), settings=SMALL, spills=spills, threads=threads)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(call, resolver)
                await stop.reached()
                group.cancel_scope.cancel()
        assert files_below(tmp_path) == []
        stop.open()
        await happened(spills.ended)

    assert files_below(tmp_path) == []


async def test_a_cancel_while_one_of_three_saves_hangs_leaves_none_of_the_others(tmp_path: Path) -> None:
    local = LocalSpillStore(tmp_path)
    ended = threading.Semaphore(0)
    async with hanging() as (stop, threads):

        class Spills:
            """Saves, the second one hanging before it begins."""

            def save(
                self, owner_id: str, number: int, content: Iterable[bytes], transaction: SpillTransaction
            ) -> SavedSpill:
                try:
                    if number == 2:
                        for _ in range(2):
                            assert others.acquire(timeout=5)
                        stop.wait()
                    saved = local.save(owner_id, number, content, transaction)
                    others.release()
                    return saved
                finally:
                    ended.release()

        others = threading.Semaphore(0)
        resolver = make_resolver(
            MemoryStore(map(long_session, "abc")), settings=SMALL, spills=Spills(), threads=threads
        )
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(resolver.prepare, params("", *"abc"))
                await stop.reached()
                assert len(files_below(tmp_path)) == 2
                group.cancel_scope.cancel()
        assert files_below(tmp_path) == []
        stop.open()
        for _ in range(3):
            assert await anyio.to_thread.run_sync(functools.partial(ended.acquire, timeout=5))

    assert files_below(tmp_path) == []


def test_an_abandoned_thread_that_returns_when_its_loop_has_stopped_ends() -> None:
    workers: list[threading.Thread] = []
    loop = asyncio.new_event_loop()

    def hang() -> None:
        workers.append(threading.current_thread())
        stop.wait()

    async def abandon() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(WorkerThreads().run, hang)
            await stop.reached()
            group.cancel_scope.cancel()

    with Stop() as stop:
        loop.run_until_complete(abandon())
    (worker,) = workers
    worker.join(1)
    ended = not worker.is_alive()
    # Whatever the answer, nothing may be left behind.
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    worker.join(5)

    assert ended


async def test_calls_do_not_disturb_each_other() -> None:
    barrier = threading.Barrier(4)
    store = MemoryStore(
        [captured(name, name) for name in "abcd"], before_capture=lambda session_id, check: ignore(barrier.wait(5))
    )
    resolver = make_resolver(store)
    results: dict[str, dict[str, Any]] = {}

    async def run(name: str) -> None:
        results[name] = answered(await resolver.prepare(params(f"see {mention(name)}", agent_id=f"agent of {name}")))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for name in "abcd":
                group.start_soon(run, name)

    for name in "abcd":
        assert results[name]["content"] == f"see @{name}"
        assert [snapshot["sessionId"] for snapshot in snapshots_in(results[name]["additionalContext"])] == [name]


# Candidates


def header(session_id: str, **facts: Any) -> SessionHeader:
    given_facts: dict[str, Any] = {"created_at": 1} | facts
    return SessionHeader(session_id=session_id, **given_facts)


async def candidate_ids(resolver: Resolver, *, agent_id: str = "agent", **more: Any) -> list[str]:
    return [row.session_id for row in await resolver.candidates(CandidatesParams(agent_id, **more))]


async def test_candidates_come_from_all_stores_and_none_is_read() -> None:
    stores = [MemoryStore(headers=[header(name)], kind=f"kind {name}") for name in "ab"]
    rows = await make_resolver(*stores).candidates(CandidatesParams("agent"))

    assert [(row.session_id, row.origin) for row in rows] == [("a", "kind a"), ("b", "kind b")]
    assert [store.listings for store in stores] == [1, 1]
    assert [store.captured for store in stores] == [[], []]


@pytest.mark.parametrize("limit", [0, True, "3", 10_001, 1.5])
async def test_a_limit_that_is_invalid_is_refused_before_anything_is_listed(limit: Any) -> None:
    store = MemoryStore(headers=[header("a")])
    failure = await failure_of(make_resolver(store).candidates(CandidatesParams("agent", limit=limit)))

    assert failure.data == {"code": "SESSION_REFERENCE_INVALID_REFERENCE", "limit": 10_000}
    assert store.listings == 0


async def test_as_many_candidates_as_asked_for_or_as_the_setting_says() -> None:
    store = MemoryStore(headers=[header(f"s{number}") for number in range(9)])
    resolver = make_resolver(store, settings=Settings(candidate_limit=4))

    assert len(await candidate_ids(resolver)) == 4
    assert len(await candidate_ids(resolver, limit=2.0)) == 2
    assert len(await candidate_ids(resolver, limit=100)) == 9


async def test_candidates_take_all_params() -> None:
    store = MemoryStore(
        headers=[
            header("agent", cwd="/w"),
            header("here", cwd="/w", title="Find me"),
            header("there", cwd="/x", title="find me too", is_subagent=True),
            header("not"),
        ],
        lists_subagents=False,
    )
    resolver = make_resolver(store)

    assert await candidate_ids(resolver) == ["here", "not"]
    assert await candidate_ids(resolver, query="FIND") == ["here"]
    assert await candidate_ids(resolver, query="find", cwd="/x", include_subagents=True) == ["there", "here"]
    assert await candidate_ids(resolver, query="") == ["here", "not"]


async def test_the_target_is_left_out_also_when_its_id_comes_in_halves() -> None:
    resolver = make_resolver(MemoryStore(headers=[header("😀"), header("a")]))

    assert await candidate_ids(resolver, agent_id="\ud83d\ude00") == ["a"]


async def test_a_session_that_could_not_be_listed_costs_its_own_row_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resolver = make_resolver(MemoryStore(headers=[header("good")], unlisted=[Unlisted("bad", "corrupt")]))

    assert [await candidate_ids(resolver) for _ in range(3)] == [["good"]] * 3
    assert len(caplog.records) == 1


async def test_a_store_that_cannot_be_read_at_all_fails_the_list() -> None:
    def fail(check: CheckCancelled) -> None:
        raise read_failed(ReadFailedReason.PERMISSION)

    good, bad = MemoryStore(headers=[header("a")]), MemoryStore(before_listing=fail)
    failure = await failure_of(make_resolver(good, bad).candidates(CandidatesParams("agent")))

    assert failure.data == {"code": "SESSION_REFERENCE_READ_FAILED", "reason": "permission"}


async def test_without_a_store_there_are_no_candidates() -> None:
    assert await candidate_ids(make_resolver()) == []


async def test_a_cancel_while_a_listing_hangs_is_obeyed_at_once() -> None:
    async with hanging() as (stop, threads):
        resolver = make_resolver(MemoryStore(before_listing=lambda check: stop.wait()), threads=threads)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(resolver.candidates, CandidatesParams("agent"))
                await stop.reached()
                group.cancel_scope.cancel()

        assert stop.arrived == 1
        assert not stop.left.is_set()
