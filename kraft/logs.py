"""What a node writes about itself: one line an event on standard error, time, level, text, values.

The process configures it once, as it begins. Library code only calls `structlog.get_logger` or `logging.getLogger`, and
both come out the same way.
"""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logs(level: int = logging.INFO) -> None:
    """Sends structlog and the standard library's logging to standard error, formatted alike."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S.%f", utc=False),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.processors.format_exc_info], processor=_render
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def _render(_logger: object, _method: str, event: structlog.typing.EventDict) -> str:
    """`time LEVEL text key=value …`"""
    time, level, text = event.pop("timestamp"), event.pop("level"), event.pop("event")
    exception = event.pop("exception", None)
    for internal in ("_record", "_from_structlog", "logger"):
        event.pop(internal, None)
    values = "".join(f" {key}={value}" for key, value in event.items())
    tail = f"\n{exception}" if exception else ""
    return f"{time} {level.upper():7} {text}{values}{tail}"
