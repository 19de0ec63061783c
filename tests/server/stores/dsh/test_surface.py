"""The ordered nodes of a surface, against a plain list that is spliced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionref.server.store import ConversationItem
from sessionref.server.stores.dsh.surface import Surface, SurfaceNode

operations = st.lists(
    st.one_of(
        st.just(("append", 0, 0)),
        st.just(("first", 0, 0)),
        st.tuples(st.just("replace"), st.integers(0, 30), st.integers(1, 6)),
        st.tuples(st.just("look"), st.integers(0, 30), st.integers(1, 6)),
    ),
    max_size=60,
)


def node(seq: int) -> SurfaceNode:
    return SurfaceNode(seq, "message", ConversationItem("user", str(seq)))


def everything(seq: int) -> bool:
    return True


def surface_of(*seqs: int) -> Surface:
    surface = Surface()
    for seq in seqs:
        surface.append(node(seq))
    return surface


def seqs(surface: Surface) -> list[int]:
    return [one.seq for one in surface]


def between(surface: Surface, first: int, last: int) -> list[int] | None:
    found = surface.between(first, last, everything)
    return None if found is None else [one.seq for one in found]


@given(operations)
def test_appends_and_replacements_come_to_what_a_spliced_list_does(
    given_operations: list[tuple[str, int, int]],
) -> None:
    surface, model, seq = Surface(), list[SurfaceNode](), 1000
    for kind, at, length in given_operations:
        seq += 1
        if kind == "append":
            surface.append(node(seq))
            model.append(node(seq))
        elif kind == "first":
            surface.put_first([node(seq), node(seq + 1)])
            model[:0] = [node(seq), node(seq + 1)]
            seq += 1
        elif model:
            start = at % len(model)
            expected = model[start : start + length]
            found = surface.between(expected[0].seq, expected[-1].seq, everything)
            assert found is not None
            assert found == expected
            if kind == "replace":
                surface.replace(found, node(seq))
                model[start : start + length] = [node(seq)]
        assert list(surface) == model
        assert not model or [one for one in surface if surface.is_first(one)] == list(surface)[:1]


def test_an_empty_surface_has_no_nodes() -> None:
    assert seqs(Surface()) == []


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(1, 1, [1]), (1, 3, [1, 2, 3]), (2, 3, [2, 3]), (3, 1, None), (0, 2, None), (1, 9, None), (-1, 3, None)],
)
def test_a_range_is_found_only_forwards_and_between_nodes(first: int, last: int, expected: list[int] | None) -> None:
    assert between(surface_of(1, 2, 3), first, last) == expected


def test_a_range_that_holds_what_is_not_known_is_none() -> None:
    surface = surface_of(1, 2, 3)

    assert surface.between(1, 3, lambda seq: seq != 2) is None
    assert surface.between(1, 3, lambda seq: seq in (1, 2, 3)) is not None


def test_a_look_changes_nothing() -> None:
    surface = surface_of(1, 2, 3)
    between(surface, 1, 2)

    assert seqs(surface) == [1, 2, 3]


def test_what_was_replaced_is_no_node_any_more_and_what_replaced_it_is() -> None:
    surface = surface_of(1, 2, 3, 4)
    surface.replace([node(2), node(3)], node(5))

    assert seqs(surface) == [1, 5, 4]
    assert between(surface, 2, 4) is None
    assert between(surface, 1, 4) == [1, 5, 4]
    assert between(surface, 4, 5) is None


def test_the_whole_surface_can_be_replaced_and_go_on() -> None:
    surface = surface_of(1, 2)
    surface.replace([node(1), node(2)], node(3))
    surface.append(node(4))

    assert seqs(surface) == [3, 4]


def test_nodes_can_be_put_before_replaced_ones_and_be_replaced_with_them() -> None:
    surface = surface_of(5, 6)
    surface.replace([node(5)], node(7))
    surface.put_first([node(1), node(2)])
    assert seqs(surface) == [1, 2, 7, 6]
    surface.replace([node(2), node(7)], node(8))
    surface.append(node(9))

    assert seqs(surface) == [1, 8, 6, 9]
