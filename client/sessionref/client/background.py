"""Tasks that live as long as a context."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio

__all__ = ("background",)


@asynccontextmanager
async def background(*functions: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None, None]:
    """Run functions beside the body and cancel them after it, and not before: its last words may need them.

    What the body raises comes out as it is and never in an exception group; the functions must not raise.
    """
    failure: BaseException | None = None
    scopes = [anyio.CancelScope(shield=True) for _ in functions]
    async with anyio.create_task_group() as tasks:
        for function, scope in zip(functions, scopes, strict=True):
            tasks.start_soon(_run, function, scope)
        try:
            yield
        except anyio.get_cancelled_exc_class():
            # Only the scope that it belongs to may stop a cancellation.
            raise
        except BaseException as error:
            failure = error
        finally:
            for scope in scopes:
                scope.cancel()
    if failure is not None:
        raise failure


async def _run(function: Callable[[], Coroutine[Any, Any, None]], scope: anyio.CancelScope) -> None:
    with scope:
        await function()
