"""What every store captures: who said what, how far it was read, and what it says of damage."""

from __future__ import annotations

import threading

import pytest

from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CataloguedStore
from store_contract import TALK, every_kind, kinds_where, refusal_of, rows_of, talk_of, turns_of, unlisted_of
from store_fixtures import DAMAGES, KINDS, Cost, Damage, StoreFixture, Turn, traits_of

QUESTION = TALK[0][1]


def cases(*costs: Cost) -> pytest.MarkDecorator:
    """The kinds with the damages that cost them that."""
    found = [(kind, damage) for kind in KINDS for damage in DAMAGES if traits_of(kind).costs[damage] in costs]
    return pytest.mark.parametrize(("kind", "damage"), found)


def diagnosed(store: CataloguedStore, session_id: str) -> set[str]:
    return {diagnostic.kind for diagnostic in store.capture(session_id, never_cancelled).diagnostics}


def damaged(agent: StoreFixture, damage: Damage) -> tuple[CataloguedStore, str]:
    """A store with a damaged session, and a whole one beside it; the id of the damaged one."""
    agent.create()
    agent.write(agent.name(1), TALK, title="Damaged")
    agent.write(agent.name(2), TALK, title="Whole")
    agent.damage(agent.name(1), damage)
    return agent.open(), agent.session_id(agent.name(1))


@every_kind
def test_a_capture_is_the_conversation_in_its_order_and_byte_for_byte(agent: StoreFixture, kind: str) -> None:
    agent.create()
    agent.write(agent.name(1), TALK, cwd="/srv/ünï code")
    agent.write(agent.name(2), [("user", "something else"), ("assistant", "entirely")])
    session_id = agent.session_id(agent.name(1))
    capture = agent.open().capture(session_id, never_cancelled)

    assert turns_of(capture) == TALK
    assert (capture.session_id, capture.cwd) == (session_id, "/srv/ünï code")
    assert capture.format_version == traits_of(kind).format_version
    assert capture.diagnostics == []


@every_kind
def test_prompts_that_follow_each_other_stay_apart(agent: StoreFixture) -> None:
    talk: list[Turn] = [
        ("user", "one"),
        ("user", "two"),
        ("assistant", "three"),
        ("assistant", "four"),
        ("user", "five"),
    ]
    agent.create()
    agent.write(agent.name(1), talk)

    assert talk_of(agent.open(), agent.session_id(agent.name(1))) == talk


@every_kind
def test_a_capture_tells_how_far_it_was_read(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), TALK)
    session_id = agent.session_id(agent.name(1))
    first = agent.open().capture(session_id, never_cancelled).captured_through_seq
    agent.append(agent.name(1), TALK[:1])
    second = agent.open().capture(session_id, never_cancelled).captured_through_seq

    assert first is not None
    assert second is not None
    assert 0 <= first < second


@every_kind
def test_what_a_session_grew_by_between_listing_and_capture_is_captured(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), TALK)
    store = agent.open()
    (session_id,) = rows_of(store)
    agent.append(agent.name(1), [("user", "one more"), ("assistant", "answered")])

    assert talk_of(store, session_id) == [*TALK, ("user", "one more"), ("assistant", "answered")]


@every_kind
def test_a_session_that_is_read_while_it_goes_on_is_as_it_was_at_some_moment(agent: StoreFixture) -> None:
    talk: list[Turn] = [("assistant" if at % 2 else "user", f"{at} " + "tö\n" * 3000) for at in range(60)]
    agent.create()
    agent.write(agent.name(1), talk[:2])
    session_id, store, seen = agent.session_id(agent.name(1)), agent.open(), list[int]()

    def go_on() -> None:
        for turn in talk[2:]:
            agent.append(agent.name(1), [turn])

    writer = threading.Thread(target=go_on)
    writer.start()
    while writer.is_alive():
        capture = store.capture(session_id, never_cancelled)
        said = turns_of(capture)
        assert said == talk[: len(said)]
        assert {diagnostic.kind for diagnostic in capture.diagnostics} <= {"torn-tail", "interrupted-turn"}
        assert list(rows_of(store)) == [session_id]
        seen.append(len(said))
    writer.join()

    assert seen == sorted(seen)
    assert talk_of(store, session_id) == talk


@every_kind
def test_a_session_of_many_long_turns_is_whole(agent: StoreFixture) -> None:
    talk: list[Turn] = [("assistant" if at % 2 else "user", f"{at} " + "tö\n" * 20_000) for at in range(20)]
    agent.create()
    agent.write(agent.name(1), talk)

    assert talk_of(agent.open(), agent.session_id(agent.name(1))) == talk


@every_kind
def test_the_damages_of_a_kind_are_all_declared(kind: str) -> None:
    assert set(traits_of(kind).costs) == set(DAMAGES)


@cases("the-record", "nothing")
def test_a_damaged_session_is_listed_with_its_title_and_the_others_too(agent: StoreFixture, damage: Damage) -> None:
    store, session_id = damaged(agent, damage)
    rows = rows_of(store)

    assert set(rows) == {session_id, agent.session_id(agent.name(2))}
    assert unlisted_of(store) == []
    assert rows[agent.session_id(agent.name(2))].title == "Whole"


@cases("the-record")
def test_a_damaged_record_costs_itself_alone_and_is_counted(agent: StoreFixture, damage: Damage) -> None:
    store, session_id = damaged(agent, damage)
    is_tail = damage == "torn-tail"

    assert talk_of(store, session_id) == (TALK[:-1] if is_tail else [TALK[0], *TALK[2:]])
    assert diagnosed(store, session_id) >= {"torn-tail" if is_tail else "skipped-lines"}


@cases("the-session")
def test_damage_that_costs_the_session_is_a_refusal_that_says_corrupt(agent: StoreFixture, damage: Damage) -> None:
    store, session_id = damaged(agent, damage)

    assert refusal_of(store, session_id) is ReadFailedReason.CORRUPT
    assert agent.session_id(agent.name(2)) in rows_of(store)


@cases("nothing")
def test_damage_that_costs_nothing_leaves_every_text_and_replaces_what_is_no_character(
    agent: StoreFixture, damage: Damage
) -> None:
    store, session_id = damaged(agent, damage)
    said = {"nul-block": [""], "invalid-utf8": ["\ufffd"], "lone-surrogate": ["\ufffd", "\ud800"]}[damage]
    (_, first), *rest = talk_of(store, session_id)

    assert first in [mark + QUESTION for mark in said]
    assert rest == TALK[1:]


@kinds_where(lambda traits: traits.costs["torn-tail"] != "impossible")
def test_an_answer_that_is_still_being_written_is_there_once_it_is_whole(agent: StoreFixture) -> None:
    agent.create()
    path = agent.write(agent.name(1), TALK)
    whole = path.read_bytes()
    store, session_id = agent.open(), agent.session_id(agent.name(1))
    path.write_bytes(whole[:-9])
    torn = diagnosed(store, session_id)
    path.write_bytes(whole)

    assert "torn-tail" in torn
    assert "torn-tail" not in diagnosed(store, session_id)
    assert talk_of(store, session_id) == TALK


@kinds_where(lambda traits: traits.marks_formats)
def test_a_newer_format_is_refused_and_said_and_costs_no_other_session(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), TALK)
    agent.write_newer(agent.name(2))
    store = agent.open()

    assert refusal_of(store, agent.session_id(agent.name(2))) is ReadFailedReason.NEWER_FORMAT
    assert list(rows_of(store)) == [agent.session_id(agent.name(1))]
    assert unlisted_of(store) == [ReadFailedReason.NEWER_FORMAT]
    assert talk_of(store, agent.session_id(agent.name(1))) == TALK
