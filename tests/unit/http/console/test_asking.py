"""What was found out is shared while it is fresh, and not kept longer."""

from __future__ import annotations

from kraft.http.console.asking import Remembered


async def test_what_is_fresh_is_found_out_once() -> None:
    asked: list[str] = []

    async def find() -> int:
        asked.append("x")
        return len(asked)

    remembered: Remembered[int] = Remembered(fresh_s=3600)
    assert [await remembered.get("a", find), await remembered.get("a", find)] == [1, 1]
    assert await remembered.get("b", find) == 2


async def test_what_is_stale_is_let_go_when_something_else_is_asked_for() -> None:
    async def find() -> bytes:
        return bytes(1)

    remembered: Remembered[bytes] = Remembered(fresh_s=0)
    for key in ("a", "b", "c"):
        await remembered.get(key, find)
    assert list(remembered._tasks) == ["c"]
