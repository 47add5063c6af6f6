"""Files and folders that were given up: they stay under other names for a while, then go beside the loop.

Guarantees: nothing is removed before its time (`file.delete.delay.ms`), and what cannot be removed is
tried again by the next call. The names are Kafka's (`.deleted`, `-delete`), so that a start after a crash
knows them for what they are. Owned by the log manager, on its loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from partitions.disk import Disk
from partitions.log.errors import LogStorageError
from partitions.ports import Executor, NowMs


class DelayedRemovals:
    """What waits to be removed, by wall-clock time."""

    def __init__(self, disk: Disk, executor: Executor, now_ms: NowMs) -> None:
        self._disk = disk
        self._executor = executor
        self._now_ms = now_ms
        self._waiting: list[tuple[int, str, bool]] = []
        self._given_up: tuple[str, ...] = ()

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def add_files(self, paths: Iterable[str], delay_ms: int) -> None:
        """Files, to be removed after `delay_ms`."""
        for path in paths:
            heappush(self._waiting, (self._now_ms() + delay_ms, path, False))

    def add_folder(self, path: str, delay_ms: int) -> None:
        """A folder with all that is in it, to be removed after `delay_ms`."""
        heappush(self._waiting, (self._now_ms() + delay_ms, path, True))

    def forget_under(self, folder: str) -> None:
        """Leaves alone what waits in a directory that failed; the next start that can use it removes it."""
        self._given_up += (folder + "/",)

    async def remove_due(self) -> None:
        """Removes what has waited long enough. Raises the first LogStorageError; the next call tries again."""
        now_ms = self._now_ms()
        failed: list[tuple[int, str, bool]] = []
        failure: LogStorageError | None = None
        while self._waiting and self._waiting[0][0] <= now_ms:
            entry = heappop(self._waiting)
            _, path, is_folder = entry
            if path.startswith(self._given_up):
                continue
            try:
                await self._executor.run(self._disk.remove_tree if is_folder else self._disk.remove, path)
            except FileNotFoundError:
                continue  # it went with its folder
            except OSError as error:
                failed.append(entry)
                if failure is None:
                    failure = LogStorageError(f"removing {path} failed: {error}")
                    failure.__cause__ = error
        for entry in failed:
            heappush(self._waiting, entry)
        if failure is not None:
            raise failure
