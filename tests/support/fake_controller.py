"""The controller as a broker's parts see it, scripted: `FakeController` stands where `ControllerClient` does.

Each call is recorded; its answer is the next one scripted for that kind of request, or whatever the
kind's function makes of it. A kind without either leaves the call waiting, as a silent quorum does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from quorum.rpc.message_codec import Answer


class FakeController:
    """Answers `call` from a script."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.leader_id: int | None = None
        self.in_doubt = False
        """Whether answers come after attempts whose outcome is not known."""
        self.offset = -1
        """The committed offset that answers to clients' requests carry."""
        self._answers: dict[type[Any], deque[Any]] = {}
        self._functions: dict[type[Any], Callable[[Any], Any]] = {}
        self._called = asyncio.Event()

    def answer(self, kind: type[Any], *answers: Any) -> None:
        """The next answers to this kind of request: values, or exceptions to be raised."""
        self._answers.setdefault(kind, deque()).extend(answers)

    def always(self, kind: type[Any], function: Callable[[Any], Any]) -> None:
        """Answers this kind of request when nothing is scripted for it."""
        self._functions[kind] = function

    def calls_of(self, kind: type[Any]) -> list[Any]:
        return [request for request in self.calls if isinstance(request, kind)]

    async def until_called(self, kind: type[Any], times: int) -> None:
        """Returns once so many requests of the kind have come."""
        async with asyncio.timeout(5):
            while len(self.calls_of(kind)) < times:
                self._called.clear()
                await self._called.wait()

    async def call_persistently(self, request: Any, *, timeout_s: float) -> tuple[Answer[Any], bool]:
        return Answer(await self.call(request, timeout_s=timeout_s), self.offset), self.in_doubt

    async def call_once(self, request: Any, *, timeout_s: float) -> Any:
        return await self.call(request, timeout_s=timeout_s)

    async def call(self, request: Any, *, timeout_s: float, attempt_timeout_s: float | None = None) -> Any:
        self.calls.append(request)
        self._called.set()
        await asyncio.sleep(0)
        scripted = self._answers.get(type(request))
        if scripted:
            answer = scripted.popleft()
        elif type(request) in self._functions:
            answer = self._functions[type(request)](request)
        else:
            answer = await asyncio.get_running_loop().create_future()
        if isinstance(answer, BaseException):
            raise answer
        return answer
