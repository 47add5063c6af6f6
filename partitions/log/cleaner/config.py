"""What a node's cleaner goes by: the `log.cleaner.*` keys that are not defaults of topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNLIMITED_BYTES_PER_S: Final = float("inf")


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """Defaults are Kafka's, but for the smaller IO buffer."""

    enable: bool = True
    threads: int = 1
    """How many logs are cleaned at a time."""
    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    """Memory for the offset maps of all threads together."""
    load_factor: float = 0.9
    """How full an offset map may get."""
    io_buffer_bytes: int = 64 * 1024
    """What one job reads, unless a single batch is larger. Kafka's 512 KiB would keep the interpreter's
    lock from the event loop for several milliseconds at a time."""
    io_max_bytes_per_s: float = UNLIMITED_BYTES_PER_S
    """Bytes read and written a second, by all threads together."""
    backoff_ms: int = 15_000
    """Pause after a round that found nothing to clean."""

    @property
    def map_bytes(self) -> int:
        """Memory of one thread's offset map."""
        return max(1, self.dedupe_buffer_bytes // self.threads)
