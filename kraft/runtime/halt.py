"""The halt port in production: ends the process at once, because going on could break a promise.

Nothing is cleaned up on the way: no `finally`, no flush of a log, no answer to a client. What was promised is on disk
already; the next start recovers from there, as after kill -9.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

EXIT_CODE = 1

logger = logging.getLogger(__name__)


def halt_process(reason: str) -> NoReturn:
    """Logs why, flushes what people read, and ends the process with EXIT_CODE."""
    try:
        logger.critical("Halting this node: %s", reason)
        for handler in logging.getLogger().handlers:
            handler.flush()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Whatever stands in the way of a last word (a full disk, a closed pipe), the process ends.
        os._exit(EXIT_CODE)
