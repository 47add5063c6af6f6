"""The log of an HTTP listener for bytes that are no HTTP request: one short line now and then.

aiohttp logs the traceback of its own parser for each of them: any stranger could fill a disk. The controller listener
and a node's HTTP pages hand this to `web.AppRunner` as its logger, and their `RequestDoor`s tell it of bytes that never
came to aiohttp. Errors of other kinds are ours: they are logged whole.
"""

from __future__ import annotations

import structlog
from aiohttp.http_exceptions import HttpProcessingError

from quorum.rpc.sparse_log import SparseLog

log = structlog.get_logger(__name__)

REASON_MAX_CHARACTERS = 120


class RequestErrorLog:
    """The logger of one listener, as far as aiohttp uses one."""

    def __init__(self, listener: str) -> None:
        """`listener`: what the lines call it."""
        self._listener = listener
        self._refusals = SparseLog("refused what is no HTTP request")

    def debug(self, message: str, *arguments: object, exc_info: BaseException | None = None) -> None:
        """What aiohttp itself finds unimportant; among that, requests with an impossible method."""
        if isinstance(exc_info, HttpProcessingError):
            self._refused(arguments, exc_info)

    def exception(self, message: str, *arguments: object, exc_info: BaseException | None = None) -> None:
        """An error while a request was read or handled."""
        if isinstance(exc_info, HttpProcessingError):
            self._refused(arguments, exc_info)
        else:
            log.error(message % arguments, listener=self._listener, exc_info=exc_info)

    def refused(self, peer: str | None, beginning: bytes) -> None:
        """Something was refused that is no request of this listener; it begins so."""
        self._say(peer, beginning.decode("latin-1"))

    def _refused(self, arguments: tuple[object, ...], error: HttpProcessingError) -> None:
        # aiohttp keeps the error in a frame that the traceback holds: a cycle, with what was read in it.
        error.__traceback__ = None
        self._say(arguments[0] if arguments else None, error.message)

    def _say(self, peer: object, text: str) -> None:
        reason = ascii(" ".join(text[:REASON_MAX_CHARACTERS].split()))[1:-1]
        self._refusals.warning(listener=self._listener, peer=peer, reason=reason[:REASON_MAX_CHARACTERS])
