"""Whatever becomes of the sessions of any agent, what is known from before comes to the same as a full read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from catalogue_doubles import bring_up_to_date, full_view, index_view, open_database, outcome_of
from resolver_doubles import never_cancelled
from sessionref.server.catalogue import index as index_module
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.sources import SessionSources
from sessionref.server.store import Capture
from sessionref.server.stores.limits import ReadingLimits
from store_contract import LIMITS, TALK, every_kind, set_limits
from store_fixtures import CREATED_AT, DAMAGES, Damage, Turn, open_fixture, traits_of

talks = st.lists(
    st.tuples(st.sampled_from(["user", "assistant"]), st.sampled_from(["a", "b" * 50, "ünï\u2028\n<tag>", "p" * 5000])),
    min_size=1,
    max_size=4,
)


class Histories(RuleBasedStateMachine):
    """Sessions of one home, whatever happens to them, and all who know something of them from before."""

    parent: Path
    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.parent))
        self.agent = open_fixture(self.kind, self.folder / "home")
        self.whole: set[str] = set()
        self.there: dict[str, Path] = {}
        self.ids: list[str] = [self.agent.session_id(self.agent.name(0))]
        self.states: dict[str, bytes] = {}

    @initialize(limits=st.sampled_from(LIMITS), is_made=st.booleans())
    def begin(self, limits: ReadingLimits, is_made: bool) -> None:
        if is_made:
            self.agent.create()
        self.store = set_limits(self.agent.open(), limits)
        self.database, self.others = open_database(self.folder), open_database(self.folder)
        self.sources = SessionSources([self.store], self.database)
        self.indexes = [
            SessionIndex(self.store, None),
            SessionIndex(self.store, self.database),
            SessionIndex(self.store, self.others),
        ]

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.close()
            self.others.close()
        shutil.rmtree(self.folder)

    def chosen(self, choice: int, names: set[str] | dict[str, Path]) -> str:
        return sorted(names)[choice % len(names)]

    @rule(
        number=st.integers(0, 4),
        talk=talks,
        title=st.none() | st.sampled_from(["One", "Töö", "x" * 100]),
        cwd=st.sampled_from(["/srv/here", "/srv/there"]),
        created_at=st.integers(0, 2),
    )
    def write(self, number: int, talk: list[Turn], title: str | None, cwd: str, created_at: int) -> None:
        """A session comes, unless it is there."""
        name = self.agent.name(number)
        if name in self.there:
            return
        if not self.agent.home.exists():
            self.agent.create()
        created = CREATED_AT + created_at * 1000
        self.there[name] = self.agent.write(name, talk, title=title, cwd=cwd, created_at=created)
        self.whole.add(name)
        self.ids.append(self.agent.session_id(name))

    @precondition(lambda self: self.whole)
    @rule(choice=st.integers(0, 9), number=st.integers(5, 7), talk=talks)
    def delegate(self, choice: int, number: int, talk: list[Turn]) -> None:
        """A sub-agent gets a session, unless it has one."""
        name = self.agent.name(number)
        if name in self.there:
            return
        parent = self.chosen(choice, self.whole)
        self.there[name] = self.there[parent]
        self.ids.append(self.agent.session_id(self.agent.write_subagent(name, parent, talk)))

    @precondition(lambda self: self.whole)
    @rule(choice=st.integers(0, 9), talk=talks)
    def append(self, choice: int, talk: list[Turn]) -> None:
        """A session goes on."""
        self.agent.append(self.chosen(choice, self.whole), talk)

    @precondition(lambda self: self.whole)
    @rule(choice=st.integers(0, 9), damage=st.sampled_from(DAMAGES), more=st.none() | talks)
    def damage(self, choice: int, damage: Damage, more: list[Turn] | None) -> None:
        """A session is damaged, once, and may go on."""
        if traits_of(self.kind).costs[damage] == "impossible":
            return
        name = self.chosen(choice, self.whole)
        self.agent.append(name, TALK)
        self.agent.damage(name, damage)
        self.whole.remove(name)
        if more is not None:
            self.agent.append(name, more)

    @precondition(lambda self: hasattr(self.agent, "remove") and self.whole)
    @rule(choice=st.integers(0, 9))
    def remove(self, choice: int) -> None:
        """A session goes."""
        name = self.chosen(choice, self.whole)
        remove: Callable[[str], None] = self.agent.remove  # type: ignore[attr-defined]
        remove(name)
        self.whole.remove(name)
        del self.there[name]

    @precondition(lambda self: self.whole and traits_of(self.kind).has_own_files)
    @rule(choice=st.integers(0, 9), talk=talks)
    def exchange(self, choice: int, talk: list[Turn]) -> None:
        """A session is written anew, in its place."""
        name = self.chosen(choice, self.whole)
        self.agent.write(name, talk)

    @rule(is_closed=st.booleans())
    def restart(self, is_closed: bool) -> None:
        """A server ends, and another begins with what the catalogue has kept."""
        if is_closed:
            self.database.close()
        self.indexes[1] = SessionIndex(self.store, self.database)

    @precondition(lambda self: hasattr(self, "store"))
    @invariant()
    def captures_equal_full_reads(self) -> None:
        for session_id in self.ids:
            full = outcome_of(partial(self.store.capture, session_id, never_cancelled))
            assert outcome_of(partial(self.capture_again, session_id)) == full
            assert outcome_of(partial(self.sources.capture, session_id, never_cancelled)) == full

    @precondition(lambda self: hasattr(self, "store"))
    @invariant()
    def lists_equal_full_reads(self) -> None:
        full = full_view(self.store)
        for index in [*self.indexes, SessionIndex(self.store, self.others)]:
            bring_up_to_date(index)
            assert index_view(index) == full

    def capture_again(self, session_id: str) -> Capture:
        saved = self.store.capture_again(session_id, self.states.get, never_cancelled)
        if saved.state is not None:
            self.states[saved.key] = saved.state
        return saved.capture


@every_kind
def test_what_is_known_from_before_equals_a_full_read_after_every_step(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KindHistories(Histories):
        """Those of one kind."""

    KindHistories.parent, KindHistories.kind = tmp_path, kind
    monkeypatch.setattr(index_module, "PROBLEMS_AGAIN_SECONDS", 0)
    # Without shrinking, which takes minutes here; add it to look into a failure.
    steps = settings(
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        max_examples=30,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(KindHistories, settings=steps)  # pyright: ignore[reportUnknownMemberType]
