"""Lone surrogates wherever JSON can have them: a legal line stays one, and no line costs more than its session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsh_fixtures import DshHome, title, user
from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason, SessionReferenceError
from sessionref.server.stores.dsh import DshStore

LONE = "\ud800"
USER = {"content": [{"type": "text", "text": "said"}], "source": {"kind": "user"}, "role": "user", "id": "m"}


def line(**members: Any) -> bytes:
    """An event line of format 4 with these members, lone surrogates as escapes."""
    event = {"type": "user/message", "seq": 1, "time": 5, "data": USER, "surfaceOp": "append", **members}
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def home_with(tmp_path: Path, odd: bytes) -> DshStore:
    home = DshHome(tmp_path)
    log = home.write("odd", [user("first")], version=4)
    with log.open("ab") as file:
        file.write(odd)
    home.write("fine", [title("Fine")], version=4)
    return DshStore(tmp_path)


def outcome(store: DshStore) -> str | None:
    """The first text of the odd session, or the reason for which it is refused."""
    try:
        return store.capture("odd", never_cancelled).items[0].text
    except SessionReferenceError as failure:
        return failure.reason


@pytest.mark.parametrize(
    "odd",
    [
        line(data={**USER, f"meta{LONE}": 1}),
        line(data={**USER, "meta": {LONE: LONE}}),
        line(data={**USER, "id": LONE}),
        line(data={**USER, "source": {"kind": "user", f"x{LONE}": LONE}}),
    ],
    ids=["name", "name below", "value", "name in the source"],
)
def test_a_legal_line_with_a_lone_surrogate_is_read(tmp_path: Path, odd: bytes) -> None:
    capture = home_with(tmp_path, odd).capture("odd", never_cancelled)

    assert [item.text for item in capture.items] == ["first", "said"]
    assert capture.diagnostics == []


@pytest.mark.parametrize(
    "odd",
    [
        line(seq=LONE),
        line(time=LONE),
        line(data=LONE),
        line(data={**USER, "content": LONE}),
        line(data={**USER, "content": [LONE]}),
        line(data={**USER, "source": LONE}),
        line(surfaceOp=LONE),
        line(surfaceOp={"op": LONE, "startSeq": 0, "endSeq": 0}),
        line(surfaceOp={"op": "replace", "startSeq": LONE, "endSeq": 0}, sourceEventSeqs=[0]),
        line(sourceEventSeqs=LONE),
        line(sourceEventSeqs=[LONE]),
        line(type=LONE),
        line(**{LONE: 1}),
        line(type="session/title", data=LONE),
        line(type="session/title", data={"title": LONE}),
        line(type="session/title", seq=LONE, data={"title": "x"}),
        line(type="subagent/descriptor", data={"version": 3, "mode": LONE, "provider": "p"}),
        line(type="subagent/descriptor", data={"version": 3, "mode": "one-shot", "provider": "p", LONE: 1}),
        json.dumps(LONE).encode() + b"\n",
        json.dumps([LONE]).encode() + b"\n",
        b"junk\n" + line(type=f"turn/end{LONE}"),
    ],
)
def test_a_lone_surrogate_in_the_wrong_place_costs_its_own_session_at_most(tmp_path: Path, odd: bytes) -> None:
    store = home_with(tmp_path, odd)

    assert "fine" in {row.session_id for row in store.list_sessions(never_cancelled).sessions}
    assert outcome(store) in ("first", ReadFailedReason.CORRUPT)


def test_a_finished_turn_behind_a_bad_line_that_is_nested_too_deep_is_too_large(tmp_path: Path) -> None:
    text = '{"x":' + "[" * 2000 + "]" * 2000 + "}"
    odd = b'junk\n{"type":"turn/end","seq":1,"time":5,"data":' + text.encode() + b"}\n"
    with pytest.raises(SessionReferenceError) as failure:
        home_with(tmp_path, odd).capture("odd", never_cancelled)
    assert failure.value.reason is ReadFailedReason.TOO_LARGE
