"""What was received from one peer and not yet looked at: bounded in messages and bytes."""

import asyncio

from pdlrecover.engines.peers.transport.link import Limits


class Inbox:
    """How much of one peer waits here; more of it is kept waiting outside."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._messages, self._bytes = limits, 0, 0
        self._left = asyncio.Event()

    async def enter(self, size: int) -> None:
        """Wait until there is room for a message of this size; one always has room."""
        while self._messages and (
            self._messages >= self._limits.waiting_messages
            or self._bytes + size > self._limits.waiting_bytes
        ):
            self._left.clear()
            await self._left.wait()
        self._messages += 1
        self._bytes += size

    def leave(self, size: int) -> None:
        """Make room: a message of this size is being looked at."""
        self._messages -= 1
        self._bytes -= size
        self._left.set()
