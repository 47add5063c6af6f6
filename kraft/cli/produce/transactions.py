"""Lines in transactions, through librdkafka: begun with their first line, committed with their last, or aborted.

What is committed is a beginning of the input: the first transaction that is not ends the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kraft.user_error import UserError

STEP_S = 0.5
"""librdkafka's calls are made again after so long, so that an interruption is heard."""
ABORT_S = 10.0


class Transactions:
    """The transactions of one run. `records_max` None: all lines in one. `is_interrupted` ends waits that may end."""

    def __init__(
        self, producer: Any, records_max: int | None, timeout_s: float, is_interrupted: Callable[[], bool]
    ) -> None:
        self._producer = producer
        self._records_max = records_max
        self._timeout_s = timeout_s
        self._is_interrupted = is_interrupted
        self.open = 0
        """Lines of the open transaction."""
        self.committed = 0
        self.undecided = 0
        """Lines of a transaction of which it cannot be told whether it was committed."""

    @property
    def is_full(self) -> bool:
        return self._records_max is not None and self.open >= self._records_max

    def start(self) -> None:
        """Takes the transactional id over, which fences whoever had it. Raises UserError."""
        reason = self._tried(self._producer.init_transactions, self._timeout_s)
        if reason is not None:
            raise UserError(f"the transactional id is not to be had: {reason.str()}")

    def add_line(self) -> None:
        """Call it before a line is sent."""
        if not self.open:
            self._producer.begin_transaction()
        self.open += 1

    def commit(self) -> str | None:
        """Returns why not, if not. A transaction that can be aborted then is."""
        if not self.open:
            return None
        reason = self._tried(self._producer.commit_transaction, self._timeout_s)
        if reason is None:
            self.committed += self.open
            self.open = 0
            return None
        if reason.txn_requires_abort():
            self.abort()
            return f"the transaction was aborted ({reason.str()})"
        self.undecided, self.open = self.open, 0
        return f"it cannot be told whether the transaction was committed ({reason.str()})"

    def abort(self) -> None:
        """Aborts the open transaction, if there is one. One that cannot be reached is aborted by its coordinator, when
        its time is over."""
        if self.open:
            self.open = 0
            self._tried(self._producer.abort_transaction, ABORT_S, heeds_interruption=False)

    def _tried(
        self, call: Callable[[float], None], timeout_s: float, *, heeds_interruption: bool = True
    ) -> Any:
        """Calls it until it is done; returns the error that ended it, or None. `timeout_s` 0: without end."""
        from confluent_kafka import KafkaException

        give_up_s = time.monotonic() + timeout_s if timeout_s else None
        while True:
            try:
                call(STEP_S)
            except KafkaException as error:
                reason = error.args[0]
                is_late = give_up_s is not None and time.monotonic() >= give_up_s
                if not reason.retriable() or is_late or (heeds_interruption and self._is_interrupted()):
                    return reason
            else:
                return None
