"""What folds of all agents share: saving them, and saying what was left out."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionref.server.store import Diagnostic
from sessionref.server.stores.folds import ConversationFold, LabelFold, Log, SavedFold, saved_fold, scan_diagnostics
from sessionref.server.stores.position import decode_state, encode_state
from sessionref.server.stores.records import ScanCounts


class Record(msgspec.Struct):
    """A record of no store."""

    type: str


class Texts(ConversationFold[Record]):
    """A fold with members of its own beside those that all have."""

    texts: list[str] = msgspec.field(default_factory=list[str])
    last: int | None = None


def restored(fold: Texts, counts: ScanCounts) -> tuple[ScanCounts, Texts | None]:
    """A fold as it comes back from where it is kept."""
    saved = saved_fold(counts, fold)
    assert saved is not None
    again = decode_state(encode_state(saved), SavedFold)
    assert again is not None
    return again.counts, decode_state(bytes(again.fold), Texts)


@given(
    st.builds(
        Texts, texts=st.lists(st.text()), last=st.none() | st.integers(-(2**63), 2**64 - 1), text_bytes=st.just(5)
    ),
    st.builds(ScanCounts, st.integers(0, 9), st.integers(0, 9), st.none() | st.integers(0, 9)),
)
def test_a_fold_comes_back_as_it_was_with_how_far_its_log_was_read(fold: Texts, counts: ScanCounts) -> None:
    assert restored(fold, counts) == (counts, fold)


@pytest.mark.parametrize("fold", [Texts(texts=["half \ud800"]), Texts(last=2**64), Texts(last=-(2**63) - 1)])
def test_a_fold_that_cannot_be_written_down_is_not_kept(fold: Texts) -> None:
    assert saved_fold(ScanCounts(), fold) is None


def test_nothing_left_out_is_nothing_said() -> None:
    counts = ScanCounts(lines=5, last_record=4)

    assert scan_diagnostics(counts, is_torn=False, unknown_records=0) == []


def test_what_was_left_out_is_counted_in_words() -> None:
    one = scan_diagnostics(ScanCounts(skipped=1), is_torn=True, unknown_records=1)
    many = scan_diagnostics(ScanCounts(skipped=12), is_torn=False, unknown_records=3)

    assert one == [
        Diagnostic("torn-tail", "1 unfinished write at the end of the log was left out."),
        Diagnostic("skipped-lines", "1 damaged line left out."),
        Diagnostic("unknown-events", "1 record of unknown types were passed over."),
    ]
    assert many == [
        Diagnostic("skipped-lines", "12 damaged lines left out."),
        Diagnostic("unknown-events", "3 records of unknown types were passed over."),
    ]


def test_what_a_store_has_to_say_itself_is_not_made_up() -> None:
    labels, conversation = LabelFold[Record](), ConversationFold[Record]()
    for missing in (
        lambda: labels.feed(Record("t")),
        lambda: labels.header(Log("key", "id"), "kind:id", 0),
        lambda: labels.has_prompt,
        lambda: conversation.feed(Record("t")),
        lambda: conversation.cwd,
        conversation.items,
    ):
        with pytest.raises(NotImplementedError):
            missing()
