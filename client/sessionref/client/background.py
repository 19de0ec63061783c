"""Tasks that live as long as a context."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio

__all__ = ("background",)


@asynccontextmanager
async def background(*functions: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None, None]:
    """Run functions beside the body and cancel them after it.

    What the body raises comes out as it is and never in an exception group; the functions must not raise.
    """
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        for function in functions:
            tasks.start_soon(function)
        try:
            yield
        except anyio.get_cancelled_exc_class():
            # Only the scope that it belongs to may stop a cancellation.
            raise
        except BaseException as error:
            failure = error
        finally:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
