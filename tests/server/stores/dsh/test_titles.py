"""Labels that are found without folding a log: the same as folding it gives."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dsh_fixtures import Event, assistant, descriptor, event, event_lines, title, tool_result, turn_end, user
from sessionref.server.stores.dsh import ReadingLimits
from sessionref.server.stores.dsh.fold import Fold
from sessionref.server.stores.dsh.records import EventDecoder
from sessionref.server.stores.dsh.scan import LogScan
from sessionref.server.stores.dsh.titles import Labels, find_labels

DECODER = EventDecoder(4, ReadingLimits())

events = st.one_of(
    st.builds(title, st.sampled_from(["A", "B", "half \ud800", "", 7, None])),
    st.builds(descriptor, st.sampled_from(["researcher", "writer", ""])),
    st.builds(user, st.sampled_from(["a", '"session/title"', '{"type":"session/title"', "x" * 2000])),
    st.sampled_from([assistant("b"), tool_result("c", version=4), turn_end()]),
    st.sampled_from([event("tool/call", ["subagent/descriptor"]), event("session/title-llm-request", {"title": "C"})]),
)


@given(st.lists(events, max_size=30), st.sets(st.integers(0, 30)))
def test_labels_are_those_of_the_fold_however_the_log_is_cut_into_blocks(
    given_events: list[Event], cuts: set[int]
) -> None:
    lines, fold = event_lines(given_events, 4), Fold(4)
    edges = sorted({0, len(lines)} | {cut for cut in cuts if cut < len(lines)})
    blocks = [b"".join(lines[start:end]) for start, end in pairwise(edges)]
    scan = LogScan(DECODER, fold)
    for block in blocks:
        scan.feed(block)

    assert scan.skipped_lines == 0
    assert find_labels(iter(blocks), DECODER) == Labels(fold.title, fold.agent_label)
