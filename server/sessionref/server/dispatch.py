"""Method calls: the only file that knows jsonrpcserver, and the one place where exceptions become wire errors.

jsonrpcserver is given decoded messages and called synchronously; request methods hand back what is still to be
awaited, so that every request runs in a cancel scope of ours (`engineering.md` B.1, way B).
"""

from __future__ import annotations

import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import msgspec
from jsonrpcserver import Error, Success, dispatch_to_response

from sessionref.protocol import methods as m
from sessionref.protocol.envelope import Notification, Request, RequestId
from sessionref.protocol.errors import (
    CODE_NUMBERS,
    ProtocolCode,
    RpcError,
    internal_error,
    invalid_request,
    method_not_found,
)
from sessionref.server.resolver import Prepared, Resolver
from sessionref.server.settings import Settings

__all__ = ("CallOutcome", "ConnectionControl", "Deferred", "Dispatcher", "failure_of", "unwrap")

logger = logging.getLogger(__name__)

_LIFECYCLE: Final = (m.SHUTDOWN, m.EXIT)

Params = TypeVar("Params", bound=msgspec.Struct)


class Deferred(msgspec.Struct, frozen=True):
    """A request whose result is still to be awaited, in the request's own scope."""

    run: Callable[[], Awaitable[Any]]


class CallOutcome(msgspec.Struct, frozen=True):
    """A request that was answered while it was dispatched."""

    result: Any


class ConnectionControl(Protocol):
    """What a method may do to the connection that it was called on, in the order of the wire."""

    def cancel(self, identity: RequestId) -> None:
        """Cancel a request in flight; an unknown id is ignored."""
        ...

    @property
    def can_exit(self) -> bool:
        """Whether `shutdown` and `exit` mean something on this connection."""
        ...

    @property
    def is_shutting_down(self) -> bool:
        """Whether `shutdown` was called."""
        ...

    def shut_down(self) -> None:
        """Refuse further requests from now on."""
        ...

    def exit(self) -> None:
        """End the connection."""
        ...


class Dispatcher:
    """Binds params, calls methods and turns what goes wrong into RpcErrors; one instance serves all connections."""

    def __init__(self, resolver: Resolver, settings: Settings, *, version: str, stores: list[str]) -> None:
        self._resolver = resolver
        self._settings = settings
        self._version = version
        self._stores = stores
        self._methods: dict[str, Callable[..., Any]] = {
            m.CANDIDATES: _method(m.CandidatesParams, self._candidates),
            m.PREPARE: _method(m.PrepareParams, self._prepare),
            m.PREPARE_MESSAGES: _method(m.PrepareMessagesParams, self._prepare_messages),
            m.ASSEMBLED: _method(m.AssembledParams, self._assembled),
            m.INITIALIZE: _method(m.AnyParams, self._initialize),
            m.DISCOVER: _method(m.NoParams, self._discover),
            m.SHUTDOWN: _method(m.NoParams, self._shutdown),
            m.EXIT: _method(m.NoParams, self._exit),
            m.CANCEL_REQUEST: _method(m.CancelParams, self._cancel_request),
        }

    def request(self, control: ConnectionControl, request: Request) -> CallOutcome | Deferred:
        """Call a request's method. Raises RpcError for what the peer is to be told instead."""
        if control.is_shutting_down:
            raise invalid_request("the server is shutting down")
        if not control.can_exit and request.method in _LIFECYCLE:
            raise method_not_found()
        response: Any = self._dispatch(control, {"method": request.method, "params": _given(request.params), "id": 0})
        # OSlash's Either is read through its underscored members: its public faces cannot be read without a bind.
        error = getattr(response, "_error", None)
        if error is None:
            outcome: CallOutcome | Deferred = response._value.result
            return outcome
        raise _refusal(error.code, error.message, error.data)

    def notify(self, control: ConnectionControl, notification: Notification) -> None:
        """Call a notification's method; what is wrong with it is logged and, as JSON-RPC has it, not answered.

        A request without an id is not run: nobody could be told what came of it.
        """
        specification = m.METHODS.get(notification.method)
        if specification is None or not specification.is_notification:
            logger.info("notification ignored: it is of no notification method")
        elif control.can_exit or notification.method not in _LIFECYCLE:
            message = {"method": notification.method, "params": _given(notification.params), "id": 0}
            error = getattr(self._dispatch(control, message), "_error", None)
            if error is not None:
                logger.info("notification ignored: method=%s code=%d", notification.method, error.code)

    def _dispatch(self, control: ConnectionControl, message: dict[str, Any]) -> Any:
        # Decoded and checked already, by our envelope: both steps of the library are given nothing to do.
        decoded: Any = message
        return dispatch_to_response(decoded, self._methods, context=control, deserializer=_same, validator=_same)

    def _candidates(self, control: ConnectionControl, params: m.CandidatesParams) -> Deferred:
        return Deferred(partial(self._resolver.candidates, params))

    def _prepare(self, control: ConnectionControl, params: m.PrepareParams) -> Deferred:
        return Deferred(partial(self._resolver.prepare, params))

    def _prepare_messages(self, control: ConnectionControl, params: m.PrepareMessagesParams) -> Deferred:
        return Deferred(partial(self._resolver.prepare_messages, params))

    def _assembled(self, control: ConnectionControl, params: m.AssembledParams) -> CallOutcome:
        self._resolver.assembled(params)
        return CallOutcome(None)

    def _cancel_request(self, control: ConnectionControl, params: m.CancelParams) -> CallOutcome:
        control.cancel(params.id)
        return CallOutcome(None)

    def _shutdown(self, control: ConnectionControl, params: m.NoParams) -> CallOutcome:
        control.shut_down()
        return CallOutcome(None)

    def _exit(self, control: ConnectionControl, params: m.NoParams) -> CallOutcome:
        control.exit()
        return CallOutcome(None)

    def _discover(self, control: ConnectionControl, params: m.NoParams) -> CallOutcome:
        from sessionref.protocol.schema import openrpc_document

        return CallOutcome(openrpc_document())

    def _initialize(self, control: ConnectionControl, params: m.AnyParams) -> CallOutcome:
        settings = self._settings
        return CallOutcome(
            m.InitializeResult(
                protocol_version=m.PROTOCOL_VERSION,
                server_info=m.ServerInformation("sessionref", self._version),
                capabilities={
                    "methods": sorted(m.METHODS),
                    "stores": self._stores,
                    "preview": True,
                    "batches": True,
                    "cancellation": True,
                },
                limits={
                    "maxReferences": settings.max_references,
                    "candidateLimit": settings.candidate_limit,
                    "maxCandidates": m.MAX_CANDIDATES,
                    "maxMessageBytes": settings.max_message_bytes,
                    "maxBatch": settings.max_batch,
                    "maxConcurrentRequests": settings.max_concurrent_requests,
                    "maxQueuedRequests": settings.max_queued_requests,
                    "requestTimeoutSeconds": settings.request_timeout_seconds,
                    "drainSeconds": settings.drain_seconds,
                },
                error_codes={str(code): number for code, number in CODE_NUMBERS.items()},
            )
        )


def failure_of(error: Exception) -> RpcError:
    """What the peer is told of an exception: its own failure, or an incident that only the log explains."""
    if isinstance(error, RpcError):
        return error
    incident = secrets.token_hex(6)
    logger.error("incident %s", incident, exc_info=error)
    return internal_error(incident)


def unwrap(value: Any) -> tuple[Any, Callable[[], Coroutine[Any, Any, None]] | None]:
    """A method's result, and how to take back what it has saved if the answer is lost."""
    given = value
    if isinstance(value, Prepared):
        return given.result, given.discard
    return value, None


def _same(value: Any) -> Any:
    return value


def _given(params: dict[str, Any] | list[Any] | None) -> dict[str, Any] | list[Any]:
    return [] if params is None else params


def _method(
    kind: type[Params], handler: Callable[[ConnectionControl, Params], CallOutcome | Deferred]
) -> Callable[..., Any]:
    """A method as jsonrpcserver calls it; the context is positional only, so that no param's name can collide."""

    def call(control: ConnectionControl, /, *positional: Any, **named: Any) -> Any:
        try:
            return Success(handler(control, m.bind_params(kind, positional, named)))
        except Exception as error:
            failure = failure_of(error)
            return Error(failure.number, failure.message, failure)

    # jsonrpcserver asks for it at every call, and making it takes longer than the call.
    vars(call)["__signature__"] = inspect.signature(call)
    return call


def _refusal(number: int, message: str, data: Any) -> RpcError:
    if isinstance(data, RpcError):
        return data
    if number == ProtocolCode.METHOD_NOT_FOUND:
        return method_not_found()
    # Nothing else is left that jsonrpcserver could refuse; its own data may hold exception text, so it stays here.
    return failure_of(RuntimeError(f"jsonrpcserver refused a call: {number} {message}"))
