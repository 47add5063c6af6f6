"""Which partition of its internal topic a group, or a transactional id, belongs to: its leader coordinates it."""

from __future__ import annotations

INT_MIN = -(2**31)


def group_partition(group_id: str, partitions: int) -> int:
    """abs(Java's hash of the id) mod `partitions`, which is at least 1; as every Kafka client and tool reckons."""
    return abs_or_zero(java_hash(group_id)) % partitions


def java_hash(text: str) -> int:
    """`String.hashCode()`: over UTF-16 units, as a signed 32-bit number."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def abs_or_zero(value: int) -> int:
    """The absolute value; 0 where Java's int has none (Kafka's Utils.abs)."""
    return 0 if value == INT_MIN else abs(value)
