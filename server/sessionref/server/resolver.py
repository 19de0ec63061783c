"""The resolver: candidates, prepare and prepareMessages; the order of effects, and nothing else (section 4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from msgspec import UNSET

from sessionref.protocol.errors import SessionReferenceError
from sessionref.protocol.jsontext import join_surrogates
from sessionref.protocol.messages import ContextMessage, SessionReferenceSource, TextBlock
from sessionref.protocol.methods import (
    AssembledParams,
    Candidate,
    CandidatesParams,
    DiagnosticRecord,
    PrepareMessagesParams,
    PrepareMessagesResult,
    PrepareParams,
    PrepareResult,
    Route,
)
from sessionref.server.budget import ModelCatalogue, RouteMemory, budget_bytes
from sessionref.server.candidates import check_limit, select_candidates
from sessionref.server.catalogue.discovery import Discovery
from sessionref.server.references import (
    ReferringMessage,
    is_light,
    normalise_message,
    normalise_messages,
)
from sessionref.server.rendering import OmissionNotice, render_context, render_transcript
from sessionref.server.settings import Settings
from sessionref.server.snapshots import Snapshot, fit_snapshots
from sessionref.server.sources import SessionSources
from sessionref.server.spill import SpillStore, SpillTransaction, remove_spills
from sessionref.server.threads import WorkerThreads, check_cancelled

__all__ = ("Prepared", "Resolver")

logger = logging.getLogger(__name__)

Key = TypeVar("Key")
Value = TypeVar("Value")
Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

COMPUTATIONS: Final = 4
"""Threads that compute at once: they share one interpreter, and have their own places so that hung reads block none."""

DISCARD_SECONDS: Final = 2.0
"""How long a failed call waits for its spills to be removed; a thread goes on removing them after that."""


Discard = Callable[[], Coroutine[Any, Any, None]]
"""Takes back what a call has saved."""


class Prepared(Generic[Result]):
    """A result that may have spilled: `discard`, if there is one, is for an answer that never reaches the peer."""

    def __init__(self, result: Result, discard: Discard | None) -> None:
        self.result = result
        self.discard = discard


class Resolver:
    """Answers the three calls over the configured stores; safe for any number of concurrent calls."""

    def __init__(
        self,
        sources: SessionSources,
        settings: Settings,
        *,
        discovery: Discovery | None = None,
        threads: WorkerThreads,
        spills: SpillStore | None,
    ) -> None:
        self._sources = sources
        wait_seconds = settings.candidates_wait_ms / 1000
        self._discovery = discovery or Discovery(sources.stores, None, threads=threads, wait_seconds=wait_seconds)
        self._settings = settings
        self._threads = threads
        self._spills = spills
        self._computations = anyio.CapacityLimiter(COMPUTATIONS)
        self._routes = RouteMemory()
        self._catalogue = ModelCatalogue(settings.model_catalogue)

    def assembled(self, params: AssembledParams) -> None:
        """Remember the route of an agent's last assembled prompt."""
        route = Route(params.provider, params.model, params.context_window)
        self._routes.remember(join_surrogates(params.agent_id), route)

    async def candidates(self, params: CandidatesParams) -> list[Candidate]:
        """Sessions that can be mentioned, best first.

        Raises SessionReferenceError INVALID_REFERENCE for the limit, READ_FAILED if a whole store is unreadable.
        """
        limit = check_limit(params.limit, self._settings.candidate_limit)
        select = partial(
            select_candidates,
            agent_id=join_surrogates(params.agent_id),
            cwd=params.cwd,
            query=params.query or "",
            limit=limit,
            include_subagents=params.include_subagents,
        )
        return await self._discovery.candidates(lambda rows, check: select(rows, check=check))

    async def prepare(self, params: PrepareParams) -> Prepared[PrepareResult]:
        """Readable content and at most one context; all or nothing.

        Raises SessionReferenceError with any of the codes of contract section 1 but INVALID_CONFIG.
        """
        agent_id = join_surrogates(params.agent_id)
        given = params.content if params.references is None else [params.content, params.references]
        message = await self._normalised(
            given, normalise_message, params.content, params.references, agent_id, self._settings.max_references
        )
        if not message.references:
            return Prepared(PrepareResult(content=message.content), None)
        contexts, diagnostics, discard = await self._contexts(
            [message], agent_id, params.route, params.preview or False
        )
        result = PrepareResult(
            content=message.content, additional_context=contexts[0] or UNSET, diagnostics=diagnostics or UNSET
        )
        return Prepared(result, discard)

    async def prepare_messages(self, params: PrepareMessagesParams) -> Prepared[PrepareMessagesResult]:
        """All messages, each user message that refers followed by its context; all or nothing for the whole call.

        Raises like `prepare`, with the place of the message.
        """
        agent_id = join_surrogates(params.agent_id)
        messages = await self._normalised(
            params.messages, normalise_messages, params.messages, agent_id, self._settings.max_references
        )
        contexts, diagnostics, discard = await self._contexts(messages, agent_id, params.route, preview=False)
        answered: list[Any] = []
        for given, message, context in zip(params.messages, messages, contexts, strict=True):
            answered += [given] if context is None else [{**given, "content": message.content}, context]
        return Prepared(PrepareMessagesResult(messages=answered, diagnostics=diagnostics or UNSET), discard)

    async def _contexts(
        self, messages: Sequence[ReferringMessage], agent_id: str, route: Route | None, preview: bool
    ) -> tuple[list[ContextMessage | None], list[DiagnosticRecord], Discard | None]:
        """Budget, read, render, spill: for each message its context, and how to take everything back."""
        session_ids = {reference.session_id: None for message in messages for reference in message.references}
        if not session_ids:
            return [None] * len(messages), [], None
        try:
            budget = await self._budget(agent_id, route)
            captures = await self._all(
                {session_id: session_id for session_id in session_ids},
                lambda session_id: self._sources.capture(session_id, check_cancelled),
            )
        except SessionReferenceError as failure:
            raise _placed(failure, messages) from None
        shown = await self._compute(fit_snapshots, messages, captures, budget, check_cancelled)
        transaction = SpillTransaction()

        async def discard() -> None:
            await self._discard(transaction)

        try:
            contexts = await self._published(messages, shown, agent_id, transaction, preview)
        except BaseException:
            await discard()
            raise
        diagnostics = [
            DiagnosticRecord(session_id=session_id, kind=diagnostic.kind, detail=diagnostic.detail)
            for session_id, capture in captures.items()
            for diagnostic in capture.diagnostics
        ]
        return contexts, diagnostics, None if transaction.is_empty else discard

    async def _published(
        self,
        messages: Sequence[ReferringMessage],
        shown: Sequence[Sequence[Snapshot]],
        agent_id: str,
        transaction: SpillTransaction,
        preview: bool,
    ) -> list[ContextMessage | None]:
        spills = {
            (place, number): row
            for place, rows in enumerate(shown)
            for number, row in enumerate(rows)
            if row.retained.truncated
        }

        def spill(place: tuple[int, int]) -> dict[str, Any]:
            return self._spill(spills[place], place[1] + 1, agent_id, transaction, preview)

        snapshots = await self._all({place: place for place in spills}, spill)
        from uuid import uuid4

        contexts: list[ContextMessage | None] = []
        for place, rows in enumerate(shown):
            if not rows:
                contexts.append(None)
                continue
            notices = [
                OmissionNotice(
                    session_id=row.reference.session_id,
                    captured_through_seq=row.capture.captured_through_seq,
                    omitted_messages=row.retained.omitted_messages,
                    omitted_bytes=row.retained.omitted_bytes,
                    full_snapshot=snapshots[place, number],
                )
                for number, row in enumerate(rows)
                if row.retained.truncated
            ]
            text = await self._compute(render_context, [row.object for row in rows], notices)
            contexts.append(
                ContextMessage(
                    id=str(uuid4()),
                    content=[TextBlock(text)],
                    source=SessionReferenceSource(references=[row.record(at) for at, row in enumerate(rows)]),
                )
            )
        return contexts

    def _spill(
        self, row: Snapshot, number: int, agent_id: str, transaction: SpillTransaction, preview: bool
    ) -> dict[str, Any]:
        if preview:
            return {"status": "unavailable", "reason": "preview"}
        if self._spills is None:
            return {"status": "unavailable", "reason": "storage-not-configured"}
        transcript = render_transcript(row.capture, row.reference.label, check_cancelled)
        try:
            saved = self._spills.save(agent_id, number, transcript, transaction)
        except InterruptedError:
            # The request is over: nobody will be told.
            return {"status": "unavailable", "reason": "save-failed"}
        except OSError as error:
            logger.warning("a snapshot could not be saved: %s", error.strerror or type(error).__name__)
            return {"status": "unavailable", "reason": "save-failed"}
        return {
            "status": "saved",
            "locator": saved.locator,
            "bytes": saved.bytes,
            "retrievalHint": saved.retrieval_hint,
        }

    async def _discard(self, transaction: SpillTransaction) -> None:
        paths = transaction.end()
        if paths:
            with anyio.move_on_after(DISCARD_SECONDS, shield=True):
                await anyio.to_thread.run_sync(remove_spills, paths, abandon_on_cancel=True)

    async def _budget(self, agent_id: str, given: Route | None) -> int:
        settings = self._settings
        if settings.max_reference_bytes is not None:
            return settings.max_reference_bytes
        route = self._routes.route_of(agent_id) or given or Route()
        window = route.context_window
        if window is None and route.provider is not None and route.model is not None and self._catalogue.is_configured:
            window = await self._threads.run(self._catalogue.context_window, route.provider, route.model)
        return budget_bytes(window, settings.reference_context_fraction)

    async def _compute(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await anyio.to_thread.run_sync(function, *arguments, limiter=self._computations)

    async def _normalised(
        self, given: Any, normalise: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Parse and check on the event loop what takes no time there, and anything larger in a thread."""
        return normalise(*arguments) if is_light(given) else await self._compute(normalise, *arguments)

    async def _all(self, inputs: dict[Key, Value], function: Callable[[Value], Result]) -> dict[Key, Result]:
        """Run a function in a thread for every input, in parallel; the first failure cancels the others."""
        results: dict[Key, Result] = {}
        failures: list[SessionReferenceError] = []

        async with anyio.create_task_group() as group:

            async def run(key: Key, value: Value) -> None:
                try:
                    results[key] = await self._threads.run(function, value)
                except SessionReferenceError as failure:
                    failures.append(failure)
                    group.cancel_scope.cancel()

            for key, value in inputs.items():
                group.start_soon(run, key, value)
        if failures:
            raise failures[0]
        return {key: results[key] for key in inputs}


def _placed(failure: SessionReferenceError, messages: Sequence[ReferringMessage]) -> SessionReferenceError:
    """The failure of a source with the place of its first mention, or of the budget with the first that needs one."""
    places = [
        (message.index, at, reference.session_id)
        for message in messages
        for at, reference in enumerate(message.references)
    ]
    for message_index, at, session_id in places:
        if session_id == failure.facts.session_id:
            return failure.at(input_index=at, message_index=message_index)
    return failure.at(message_index=places[0][0])
