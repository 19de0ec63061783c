"""The current surface of a log, event by event: what is shown now, after all replacements (dsh-format section 3.5).

Every event costs what it adds and removes. The state can be taken out and resumed at any event.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET

from sessionref.protocol.jsontext import convert, utf8_length
from sessionref.server.store import ConversationItem
from sessionref.server.stores.dsh.citations import Citations
from sessionref.server.stores.dsh.descriptors import agent_label, title
from sessionref.server.stores.dsh.events import (
    AssistantMessage,
    Event,
    LogOnlyEvent,
    NamedReplace,
    Replace,
    StepEnd,
    StepStart,
    SubagentDescriptor,
    SurfaceEvent,
    SystemMessage,
    TitleEvent,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownEvent,
)
from sessionref.server.stores.dsh.formats import Record
from sessionref.server.stores.dsh.header import safe_integer
from sessionref.server.stores.dsh.projection import project
from sessionref.server.stores.dsh.surface import NodeKind, Surface, SurfaceNode
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import corrupt, too_large

__all__ = ("Fold", "FoldState")

_KINDS: Final[tuple[NodeKind, ...]] = ("message", "tool-result", "system")

_MAX_PARTS: Final = 64
"""Parts of a saved surface: a log that grows often is put together again now and then."""

_NAMED_VERSION: Final = 3
"""From this format on the ends of a range have other names, and a system prompt at the head of the surface stays."""


class FoldState(msgspec.Struct, kw_only=True):
    """All that a fold knows, in builtins and Structs. `next_seq` is the position that the next event must have.

    The surface is kept in parts, each encoded by itself: most logs only grow, and a resumed fold needs to know the
    nodes that it was resumed with only if a replacement names one of them.
    """

    version: int
    next_seq: int = 0
    items: list[ConversationItem] = []
    item_seqs: list[int] = []
    surface_parts: list[bytes] = []
    conversation_bytes: int = 0
    title: str | None = None
    agent_label: str | None = None
    turn_open: bool = False
    step_open: bool = False
    pending_calls: list[str] = []
    unknown_events: int = 0


class Fold:
    """Takes the events of one log in their order; `title` and `agent_label` are the latest so far.

    `unknown_events` counts events of unknown types that were passed over and did not say that they may be.
    """

    def __init__(self, version: int, limits: ReadingLimits | None = None) -> None:
        self.version = version
        self.title: str | None = None
        self.agent_label: str | None = None
        self.unknown_events = 0
        self._limit = (limits or ReadingLimits()).conversation_bytes
        self._next_seq = 0
        self._surface = Surface()
        self._bytes = 0
        self._saved = FoldState(version=version)
        self._turn_open = False
        self._step_open = False
        self._pending: dict[str, None] = {}

    @classmethod
    def resume(cls, state: FoldState, limits: ReadingLimits | None = None) -> Fold:
        """A fold that goes on where the state was taken."""
        fold = cls(state.version, limits)
        fold.title, fold.agent_label = state.title, state.agent_label
        fold.unknown_events = state.unknown_events
        fold._next_seq = state.next_seq
        fold._turn_open, fold._step_open = state.turn_open, state.step_open
        fold._pending = dict.fromkeys(state.pending_calls)
        fold._saved, fold._bytes = state, state.conversation_bytes
        return fold

    def state(self) -> FoldState:
        """A copy of all that the fold knows; the fold may go on."""
        fresh = list(self._surface)
        parts = [*self._saved.surface_parts, _encode_part(fresh)] if fresh else self._saved.surface_parts
        if len(parts) > _MAX_PARTS:
            parts = [_encode_part([node for part in parts for node in _decode_part(part, {})])]
        return FoldState(
            version=self.version,
            next_seq=self._next_seq,
            items=self.items(),
            item_seqs=self._saved.item_seqs + [node.seq for node in fresh if node.item is not None],
            surface_parts=list(parts),
            conversation_bytes=self._bytes,
            title=self.title,
            agent_label=self.agent_label,
            turn_open=self._turn_open,
            step_open=self._step_open,
            pending_calls=list(self._pending),
            unknown_events=self.unknown_events,
        )

    def surface(self) -> list[SurfaceNode]:
        """The nodes of the current surface, in the order in which they are shown."""
        self._restore()
        return list(self._surface)

    def items(self) -> list[ConversationItem]:
        """The conversation on the current surface."""
        return self._saved.items + [node.item for node in self._surface if node.item is not None]

    def _restore(self) -> None:
        """Put the nodes that the fold was resumed with before those that came since."""
        saved = self._saved
        if not saved.surface_parts:
            return
        self._saved = FoldState(version=self.version)
        items = dict(zip(saved.item_seqs, saved.items, strict=True))
        self._surface.put_first([node for part in saved.surface_parts for node in _decode_part(part, items)])

    @property
    def turn_open(self) -> bool:
        """Whether the log ends inside a turn."""
        return self._turn_open

    @property
    def pending_calls(self) -> int:
        """How many tool calls of the open turn have no result."""
        return len(self._pending)

    @property
    def captured_through_seq(self) -> int | None:
        """The last position, with the events that a reader adds to close an open turn; None without events.

        Those are a result for each pending call, the end of the step and the end of the turn (dsh-format section 2.6).
        """
        if not self._next_seq:
            return None
        closers = len(self._pending) + self._step_open + 1 if self._turn_open else 0
        return self._next_seq - 1 + closers

    def feed(self, record: Record) -> bool:
        """Take the next event; false, and nothing changes, if its position does not continue the log.

        Raises Unreadable: corrupt for an event that breaks a rule of the surface, too-large.
        """
        if not isinstance(record, Event):
            length = record.length()
            if record.seq0 != self._next_seq or not length:
                return False
            self._next_seq += length
            return True
        if record.seq != self._next_seq:
            return False
        self._next_seq += 1
        is_bare = record.surface_op is UNSET and record.source_event_seqs is UNSET
        if is_bare and isinstance(record, LogOnlyEvent):
            # Most events of most logs: nothing counts but that they are there.
            return True
        if isinstance(record, SurfaceEvent):
            self._show(record)
        elif isinstance(record, UnknownEvent):
            if record.surface_op is not UNSET:
                raise corrupt()
            self.unknown_events += record.ignorable is not True
        elif not is_bare:
            raise corrupt()
        else:
            self._note(record)
        return True

    def _note(self, event: Event) -> None:
        match event:
            case TurnStart() | TurnEnd():
                self._turn_open = isinstance(event, TurnStart)
                self._step_open = False
                self._pending.clear()
            case StepStart():
                self._step_open = True
            case StepEnd():
                self._step_open = False
                self._pending.clear()
            case TitleEvent():
                self.title = title(event) or self.title
            case SubagentDescriptor():
                self.agent_label = agent_label(event)
            case _:
                pass

    def _show(self, event: SurfaceEvent) -> None:
        if isinstance(event, ToolResult):
            node = SurfaceNode(event.seq, "tool-result")
            for call in event.call_ids() if self._pending else ():
                if isinstance(call, str):
                    self._pending.pop(call, None)
        elif isinstance(event, SystemMessage):
            node = SurfaceNode(event.seq, "system")
        else:
            node = SurfaceNode(event.seq, "message", project(event, self.version))
            if isinstance(event, AssistantMessage) and self._step_open:
                self._announce(event)
        if event.surface_op == "append":
            self._surface.append(node)
        else:
            self._replace(event, node)
        if node.item is not None:
            self._bytes += utf8_length(node.item.text)
            if self._bytes > self._limit:
                raise too_large(self._limit)

    def _announce(self, event: AssistantMessage) -> None:
        data = event.data
        for block in (data.message.content if data.message else data.content) or ():
            if block.type == "tool-call" and isinstance(block.id, str):
                self._pending[block.id] = None

    def _replace(self, event: SurfaceEvent, node: SurfaceNode) -> None:
        """Put the node of an event in the place of those that it shadows. Raises Unreadable, corrupt."""
        self._restore()
        first, last = self._range(event.surface_op)
        if event.source_event_seqs is UNSET:
            raise corrupt()
        cited = Citations(event.source_event_seqs)
        shadowed = self._surface.between(first, last, lambda seq: seq in cited)
        if shadowed is None:
            raise corrupt()
        if node.kind == "tool-result" and [old.kind for old in shadowed] != ["tool-result"]:
            raise corrupt()
        takes_head = shadowed[0].kind == "system" and self._surface.is_first(shadowed[0])
        if self.version >= _NAMED_VERSION and takes_head and (node.kind != "system" or len(shadowed) > 1):
            raise corrupt()
        self._bytes -= sum(utf8_length(old.item.text) for old in shadowed if old.item is not None)
        self._surface.replace(shadowed, node)

    def _range(self, operation: Any) -> tuple[int, int]:
        """The first and the last position of a replacement, in no order that is known yet."""
        try:
            if self.version < _NAMED_VERSION:
                replace = convert(operation, Replace)
                return _position(replace.start), _position(replace.end)
            named = convert(operation, NamedReplace)
            return _position(named.start), _position(named.end)
        except msgspec.ValidationError:
            raise corrupt() from None


def _encode_part(nodes: list[SurfaceNode]) -> bytes:
    """Nodes as one integer each: position and kind."""
    return msgspec.msgpack.encode([node.seq * len(_KINDS) + _KINDS.index(node.kind) for node in nodes])


def _decode_part(part: bytes, items: dict[int, ConversationItem]) -> list[SurfaceNode]:
    decoded = msgspec.msgpack.decode(part, type=list[int])
    pairs = (divmod(number, len(_KINDS)) for number in decoded)
    return [SurfaceNode(seq, _KINDS[kind], items.get(seq)) for seq, kind in pairs]


def _position(number: float) -> int:
    position = safe_integer(number)
    return -1 if position is None else position
