"""What a lookup by time may cost: the headers of batches, which it goes by, are their producers' word.

A header can promise a timestamp that no record has, and a few kilobytes can unfold to hundreds of megabytes;
lookups run on the event loop. Whoever opens batches spends of a budget; where it is spent, a batch is answered
by its header alone.
"""

from __future__ import annotations

from typing import Final

LOOKUP_COST_BYTES: Final = 32 * 1024 * 1024
"""What one lookup may spend: about a tenth of a second of unfolding gzip, the slowest codec."""
RECORD_COST_BYTES: Final = 256
"""What looking at one record costs, in bytes that could have been unfolded meanwhile."""


class BudgetSpentError(Exception):
    """The lookup may do no more."""


class LookupBudget:
    """The budget of one lookup: `left_bytes` of reading and unfolding, to be had until there is none left."""

    __slots__ = ("left_bytes",)

    def __init__(self, cost_bytes: int = LOOKUP_COST_BYTES) -> None:
        self.left_bytes = cost_bytes

    def spend(self, cost_bytes: int) -> None:
        """Takes so much. Raises BudgetSpentError, and leaves nothing, if nothing would be left."""
        self.left_bytes -= cost_bytes
        if self.left_bytes <= 0:
            self.left_bytes = 0
            raise BudgetSpentError

    def take_all(self) -> int:
        """Takes all that is left, for what is known to cost less only when it is done; the rest is given back."""
        left_bytes, self.left_bytes = self.left_bytes, 0
        return left_bytes
