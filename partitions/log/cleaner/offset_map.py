"""The offset map: for each key of the section being cleaned, the offset of its last record.

Guarantees: its memory is fixed when it is made, 24 bytes a slot whatever the keys' lengths: 16 of
the key's hash, 8 of the offset. It is taken from the system as it is used: Python would zero 128 MB in
some 70 ms, in which no other thread runs. Two keys with one hash would count as one key, and the older of
the two would be lost; BLAKE2b of 128 bits makes that as unlikely for keys chosen to collide as for others.
A cleaning job fills it, further jobs ask it; it belongs to one of them at a time.
"""

from __future__ import annotations

from hashlib import blake2b
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

HASH_BYTES: Final = 16
SLOT_BYTES: Final = HASH_BYTES + 8
NOT_FOUND: Final = -1


class OffsetMap:
    """An open-addressed hash table over two flat buffers."""

    __slots__ = ("_capacity", "_hashes", "_memory", "_offsets", "_slots", "_used", "latest_offset")

    def __init__(self, slots: int, *, load_factor: float) -> None:
        """A map of `slots` slots that takes `load_factor` of them, at least one, and leaves one free."""
        self._slots = max(2, slots)
        self._capacity = min(max(1, int(self._slots * load_factor)), self._slots - 1)
        self._hashes = _fresh_memory(self._slots * HASH_BYTES)
        self._memory = _fresh_memory(self._slots * 8)
        # One more than the offset, so that fresh memory, which is zero, says that a slot is free.
        self._offsets = memoryview(self._memory).cast("q")
        self._used = 0
        self.latest_offset = NOT_FOUND
        """The offset up to which records have been taken in."""

    @classmethod
    def within(cls, memory_bytes: int, *, load_factor: float, max_keys: int) -> OffsetMap:
        """The largest map of that much memory, or a smaller one that holds `max_keys` all the same."""
        wanted = int(max_keys / load_factor) + 2
        return cls(min(memory_bytes // SLOT_BYTES, wanted), load_factor=load_factor)

    def close(self) -> None:
        """Gives the memory back, for which the system takes its time: 128 MB are some 10 ms. The map is not used
        any more; other threads run meanwhile."""
        self._offsets.release()
        self._memory.close()
        self._hashes.close()

    def __len__(self) -> int:
        return self._used

    def put(self, key: bytes, offset: int) -> bool:
        """Notes `offset` for `key`. False, with nothing changed, when a new key finds the map full."""
        digest = blake2b(key, digest_size=HASH_BYTES).digest()
        slot = self._slot(digest)
        if not self._offsets[slot]:
            if self._used >= self._capacity:
                return False
            self._hashes[slot * HASH_BYTES : (slot + 1) * HASH_BYTES] = digest
            self._used += 1
        self._offsets[slot] = offset + 1
        return True

    def get(self, key: bytes) -> int:
        """The offset noted last for `key`; -1 if there is none."""
        return self._offsets[self._slot(blake2b(key, digest_size=HASH_BYTES).digest())] - 1

    def _slot(self, digest: bytes) -> int:
        """Where the hash is, or the free slot where it would go."""
        offsets, hashes, slots = self._offsets, self._hashes, self._slots
        slot = int.from_bytes(digest[:8], "big") % slots
        while offsets[slot]:
            if hashes[slot * HASH_BYTES : (slot + 1) * HASH_BYTES] == digest:
                return slot
            slot += 1
            if slot == slots:
                slot = 0
        return slot


def _fresh_memory(size_bytes: int) -> mmap:
    """Zeroes, of which a page takes memory and time once it is written to."""
    return mmap(-1, size_bytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)
