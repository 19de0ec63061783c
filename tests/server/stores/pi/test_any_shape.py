"""Pi's sessions of any shape: nothing breaks the reader, and going on with them is as good as reading them anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pi_records import PiLog, capture_of, said
from resolver_doubles import never_cancelled
from sessionref.server.store import Capture
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.pi.store import PiStore
from store_fixtures.logs import lines_of

Record = dict[str, Any]

texts = st.text(st.characters(codec=None), max_size=5) | st.just("padding " * 700)


def message(identity: str, parent: str | None, role: str, text: str) -> Record:
    return {"type": "message", "id": identity, "parentId": parent, "message": {"role": role, "content": text}}


def compaction(identity: str, parent: str | None, first_kept: str | None, index: int) -> Record:
    kept = {"firstKeptEntryId": first_kept, "firstKeptEntryIndex": index}
    return {"type": "compaction", "id": identity, "parentId": parent, "summary": "short", **kept}


def name(text: str | None) -> Record:
    return {"type": "session_info", "name": text}


def typed(members: Record, kind: str) -> Record:
    return {**members, "type": kind}


ids = st.sampled_from(["a", "b", "c", "d", "e"])
roles = st.sampled_from(["user", "assistant", "toolResult"])
entries = st.lists(
    st.one_of(
        st.builds(message, ids, st.none() | ids, roles, texts),
        st.builds(compaction, ids, st.none() | ids, st.none() | ids, st.integers(-2, 9)),
        st.builds(name, st.none() | st.text(max_size=3)),
        st.builds(typed, st.just(Record()), st.sampled_from(["session", "label", "title"])),
        st.just({"broken": 1}),
    ),
    max_size=12,
)


@given(entries=entries, version=st.sampled_from([1, 2, 3]), cut=st.integers(0, 12), bytes_less=st.integers(0, 40))
def test_what_is_kept_of_any_beginning_and_the_rest_is_as_good_as_a_full_read(
    entries: list[dict[str, Any]],
    version: int,
    cut: int,
    bytes_less: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("pi")
    limits = ReadingLimits(whole_bytes=0, saved_from_bytes=0)
    header = {"type": "session", "version": version, "id": "s"}
    lines = [lines_of([record]) for record in [header, *entries]]
    content, beginning = b"".join(lines), b"".join(lines[: cut + 1])
    beginning = beginning[: max(len(lines[0]), len(beginning) - bytes_less)]
    store, path = PiStore(folder, limits=limits), folder / "2026_s.jsonl"
    path.write_bytes(beginning)
    first = store.capture_again("pi:s", lambda key: None, never_cancelled)
    with path.open("ab") as file:
        file.write(content[len(beginning) :])
    again = store.capture_again("pi:s", lambda key: first.state, never_cancelled)

    assert again.capture == store.capture("pi:s", never_cancelled)
    texts = said(again.capture)
    assert all(text[2:].strip() for text in texts)
    assert texts.count("c:short") <= 1


names = st.sampled_from(["type", "id", "parentId", "message", "role", "content", "text", "summary", "name", "version"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(names, inner),
    max_leaves=12,
)
kinds = st.sampled_from(["message", "compaction", "session_info", "of_tomorrow"])


@given(st.lists(values | st.builds(typed, st.dictionaries(names, values), kinds)))
def test_no_record_of_any_shape_breaks_a_session(
    tmp_path_factory: pytest.TempPathFactory, shaped: list[dict[str, Any]]
) -> None:
    log = PiLog()
    log.talk("one", "two")

    assert isinstance(capture_of(tmp_path_factory.mktemp("pi"), log.content + lines_of(shaped)), Capture)


@given(records=entries, cut=st.integers(0, 12), bytes_less=st.integers(0, 40))
def test_what_was_learnt_from_any_beginning_and_the_rest_is_as_good_as_a_full_read(
    records: list[dict[str, Any]], cut: int, bytes_less: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("pi")
    store, path = PiStore(folder, limits=ReadingLimits(whole_bytes=0)), folder / "2026_s.jsonl"
    content = PiLog().content + lines_of(records)
    end = len(PiLog().content + lines_of(records[:cut])) - bytes_less
    path.write_bytes(content[: max(len(PiLog().content), end)])
    known = store.learn(path.name, None, never_cancelled, with_title=True)
    path.write_bytes(content)
    again = store.learn(path.name, known, never_cancelled, with_title=True)
    fresh = store.learn(path.name, None, never_cancelled, with_title=True)

    assert again is not None
    assert fresh is not None
    assert (again.header, again.has_prompt) == (fresh.header, fresh.has_prompt)
