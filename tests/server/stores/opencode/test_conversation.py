"""Conversations of OpenCode's of any shape: nothing that is stored breaks them, and nothing is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sessionref.server.store import Capture
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.opencode.conversation import Conversation
from sessionref.server.stores.opencode.records import MESSAGE_KINDS, PART_KINDS, Revert
from sessionref.server.stores.problems import Unreadable

IDS = st.sampled_from(["m0", "m1", "m2", "m3", "m4"])
WORDS = st.sampled_from(["", " ", "a word", "[User]: a word", "ü\ud800", "two\nlines"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | IDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | IDS, inner, max_size=3),
    max_leaves=5,
)
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from([*sorted(PART_KINDS), "hologram"]) | ANYTHING},
    optional={"text": WORDS | ANYTHING, "synthetic": ANYTHING, "ignored": ANYTHING, "tail_start_id": IDS | ANYTHING},
)
KINDS = st.sampled_from([*sorted(MESSAGE_KINDS), "oracle"])
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]) | KINDS | ANYTHING},
    optional={
        "type": KINDS,
        "text": WORDS | ANYTHING,
        "content": st.lists(PARTS | ANYTHING, max_size=3) | WORDS | ANYTHING,
        "summary": st.booleans() | WORDS | ANYTHING,
        "finish": WORDS | ANYTHING,
        "error": ANYTHING,
        "parentID": IDS | ANYTHING,
        "status": st.sampled_from(["completed", "running"]) | ANYTHING,
        "recent": WORDS | ANYTHING,
        "providerContext": ANYTHING,
        "time": st.fixed_dictionaries({}, optional={"created": ANYTHING, "completed": ANYTHING}) | ANYTHING,
    },
)


def stored(value: Any) -> bytes:
    """JSON as JavaScript writes it, lone surrogates as escapes."""
    return json.dumps(value).encode()


@given(
    messages=st.lists(st.tuples(IDS, MESSAGES | ANYTHING, st.none() | KINDS), max_size=6),
    parts=st.lists(st.tuples(IDS, PARTS | ANYTHING), max_size=6),
    revert=st.none() | st.builds(Revert, IDS | st.none(), st.sampled_from(["p0", "p3"]) | st.none()),
    junk=st.binary(max_size=20),
)
def test_nothing_that_is_stored_breaks_a_conversation(
    messages: list[tuple[str, Any, str | None]], parts: list[tuple[str, Any]], revert: Revert | None, junk: bytes
) -> None:
    conversation = Conversation(ReadingLimits())
    try:
        for message_id, message, kind in messages:
            conversation.add_message(message_id, conversation.message_in(stored(message)), kind=kind)
        conversation.add_message("junk", conversation.message_in(junk))
        conversation.add_message("nothing", conversation.message_in(None))
        for number, (message_id, part) in enumerate(parts):
            conversation.add_part(message_id, f"p{number}", stored(part))
        conversation.add_part("m0", "p9", junk)
        conversation.add_part("m0", "p9", None)
        capture = conversation.capture("opencode:ses_1", None, revert)
    except Unreadable:
        return

    assert all(item.text.strip() for item in capture.items)
    assert sum(item.checkpoint for item in capture.items) <= 1
    assert not any(item.checkpoint for item in capture.items[1:])
    assert "skipped-lines" in {diagnostic.kind for diagnostic in capture.diagnostics}


TURNS = st.lists(
    st.tuples(st.sampled_from(["user", "assistant"]), st.lists(st.sampled_from(["a", "b\nc", "ü"]), min_size=1)),
    max_size=8,
)


def capture_of(turns: Sequence[tuple[str, list[str]]], parts: Sequence[tuple[str, str, str]], at: int) -> Capture:
    """These turns, with a compaction before one of them that kept the one before it."""
    conversation = Conversation(ReadingLimits())

    def add(message_id: str, message: Any) -> None:
        conversation.add_message(message_id, conversation.message_in(stored(message)))

    for number, (role, _) in enumerate(turns):
        if number == at:
            add("marker", {"role": "user"})
            add("summary", {"role": "assistant", "summary": True, "finish": "stop", "parentID": "marker"})
        add(f"{number}", {"role": role})
    for message_id, part_id, text in parts:
        conversation.add_part(message_id, part_id, stored({"type": "text", "text": text}))
    if at < len(turns):
        marker = {"type": "compaction", "tail_start_id": f"{at - 1}"}
        conversation.add_part("marker", "p", stored(marker))
        conversation.add_part("summary", "p", stored({"type": "text", "text": "what happened"}))
    return conversation.capture("opencode:ses_1", None, None)


@given(turns=TURNS, at=st.integers(0, 8), random=st.randoms())
def test_every_turn_is_there_in_its_order_whatever_the_order_of_the_parts(
    turns: list[tuple[str, list[str]]], at: int, random: Any
) -> None:
    parts = [
        (f"{number}", f"p{place:04}", text)
        for number, (_, texts) in enumerate(turns)
        for place, text in enumerate(texts)
    ]
    random.shuffle(parts)
    said = [("user", "what happened")] if at < len(turns) else []
    said += [(role, "\n".join(texts)) for role, texts in (turns[max(at - 1, 0) :] if at < len(turns) else turns)]

    assert [(item.role, item.text) for item in capture_of(turns, parts, at).items] == said
