"""Up to where one replica counts while a flush that `flush.messages` made due is outstanding: pure.

An append makes a flush due when, with it, `flush.messages` records or more lie beyond what is durable and beyond what
the last due flush covers. As in Kafka, which flushes inside such an append, that flush covers the whole log, this
append included. While it is outstanding the replica's counted end stands still, at where the log ended before that
append, or where it is durable by now if that is further. Earlier appends, which made no flush due, count at once; so do
those behind a due flush that has been done, until they are `flush.messages` themselves. With `flush.messages=1` the
counted end is what is durable, always.

`LogFlushes` owns one, and says what is durable. What counts is up to where a leader lets its high watermark rise and
acknowledges acks=1, and up to where a follower fetches and takes the high watermark over.
"""

from __future__ import annotations

from partitions.log.config_values import LONG_MAX


class DueFlush:
    """The last flush that became due. Offsets are absolute; what is durable comes with each call."""

    __slots__ = ("_counted_before", "due_to")

    def __init__(self) -> None:
        self.due_to = 0
        """Outstanding while the log is not durable up to here."""
        self._counted_before = 0

    def appended(self, end_before: int, log_end_offset: int, durable_to: int, flush_messages: int) -> None:
        """The log ended at `end_before`, and grew."""
        if log_end_offset - max(durable_to, self.due_to) >= flush_messages:
            if durable_to >= self.due_to:
                self._counted_before = end_before
            self.due_to = log_end_offset

    def configured(self, log_end_offset: int, durable_to: int, flush_messages: int) -> None:
        """The log was opened, or has another `flush.messages`: nothing of what is not durable has been counted."""
        if flush_messages == LONG_MAX:
            self.due_to = 0
        else:
            self.appended(durable_to, log_end_offset, durable_to, flush_messages)

    def cut(self, log_end_offset: int) -> None:
        """The log was cut, and ends here."""
        self.due_to = min(self.due_to, log_end_offset)
        self._counted_before = min(self._counted_before, log_end_offset)

    def counted_end(self, log_end_offset: int, durable_to: int) -> int:
        """Where the replica ends for everybody but itself."""
        return log_end_offset if durable_to >= self.due_to else max(self._counted_before, durable_to)
