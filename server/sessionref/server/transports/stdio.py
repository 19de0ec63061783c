"""Standard input and output as a byte stream, claimed so that nothing else in the process can write into it.

Reading needs no thread where the platform can wait for a descriptor; regular files, and Windows, are read in one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from sessionref.server.transport import TransportBroken, has_hung_up

__all__ = ("StandardStreams", "claimed_standard_streams")

_INPUT: Final = 0
_OUTPUT: Final = 1
_ERROR: Final = 2
_LARGEST_WRITE: Final = 1_048_576
"""One write call: far more than any pipe holds, little enough to be sliced without a second thought."""


class StandardStreams:
    """A byte stream over two descriptors, which it does not own."""

    def __init__(self, input_descriptor: int, output_descriptor: int, *, chunk_bytes: int) -> None:
        self._input = input_descriptor
        self._output = output_descriptor
        self._chunk_bytes = chunk_bytes
        self._read_in_thread = sys.platform == "win32"
        self._write_in_thread = sys.platform == "win32"

    async def receive_some(self) -> bytes:
        """The next bytes, empty at the end of input. Raises TransportBroken."""
        while True:
            try:
                if not self._read_in_thread:
                    await anyio.wait_readable(self._input)
                    return os.read(self._input, self._chunk_bytes)
                return await anyio.to_thread.run_sync(os.read, self._input, self._chunk_bytes, abandon_on_cancel=True)
            except BlockingIOError:
                # Somebody else made the descriptor non-blocking and took the bytes first.
                await anyio.lowlevel.checkpoint()
            except PermissionError:
                # A regular file or /dev/null: no selector takes it, because it is always ready.
                if self._read_in_thread:
                    raise TransportBroken from None
                self._read_in_thread = True
            except OSError:
                raise TransportBroken from None

    async def send_all(self, data: bytes) -> None:
        """Write all bytes, waiting while the peer takes none. Raises TransportBroken."""
        view = memoryview(data)
        try:
            while view:
                view = view[await self._send_some(view[:_LARGEST_WRITE]) :]
        except OSError:
            raise TransportBroken from None

    def has_ended(self) -> bool:
        """Whether nobody holds the other end of the input any more."""
        return has_hung_up(self._input)

    async def aclose(self) -> None:
        """Nothing to do: whoever claimed the descriptors gives them back."""

    async def _send_some(self, data: memoryview) -> int:
        if not self._write_in_thread:
            try:
                return os.write(self._output, data)
            except BlockingIOError:
                pass
            try:
                await anyio.wait_writable(self._output)
                return 0
            except PermissionError:
                self._write_in_thread = True
        return await anyio.to_thread.run_sync(os.write, self._output, data, abandon_on_cancel=True)


@contextmanager
def claimed_standard_streams() -> Generator[tuple[int, int]]:
    """Take the standard streams away from the rest of the process; yields (input, output) descriptors.

    Inside, descriptor 0 is empty and descriptor 1 goes to standard error, so that a stray `print` or a child process
    cannot corrupt the protocol. The output is non-blocking inside; as that flag is shared with other holders of the
    same pipe it is restored in the end. Raises OSError if a standard stream is closed.
    """
    stdout = sys.stdout
    with suppress(OSError, ValueError, AttributeError):
        stdout.flush()
    input_descriptor, output_descriptor = _duplicate(_INPUT), _duplicate(_OUTPUT)
    was_blocking = os.get_blocking(output_descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, _INPUT)
    os.close(null)
    os.dup2(_ERROR, _OUTPUT)
    # What prints goes to standard error at once, and holds no lock that the end would have to wait for.
    sys.stdout = sys.stderr
    if sys.platform != "win32":
        os.set_blocking(output_descriptor, False)
    try:
        yield input_descriptor, output_descriptor
    finally:
        sys.stdout = stdout
        if sys.platform != "win32":
            os.set_blocking(output_descriptor, was_blocking)
        os.dup2(input_descriptor, _INPUT)
        os.dup2(output_descriptor, _OUTPUT)
        os.close(input_descriptor)
        os.close(output_descriptor)


def _duplicate(descriptor: int) -> int:
    """A duplicate above the standard descriptors that children do not inherit."""
    if sys.platform == "win32":
        return os.dup(descriptor)
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ERROR + 1)
