"""Points in time on the command line, ISO 8601 or milliseconds since 1970, and durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from kraft.user_error import EXIT_USAGE, UserError

MAX_MS = 2**63 - 1
_DURATION = re.compile(
    r"P(?=[\dT])(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_MS_OF = (86_400_000, 3_600_000, 60_000, 1_000)
_DIGITS_MAX = 15


def parse_time_ms(text: str, option: str) -> int:
    """Milliseconds since 1970, from 1 on. Without an offset a time is UTC, as in Kafka's own tools. Raises UserError,
    wrong usage."""
    if text.isascii() and text.isdecimal():
        moment_ms = int(text) if len(text) <= len(str(MAX_MS)) else 0
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment_ms = 0
        else:
            moment_ms = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if not 0 < moment_ms <= MAX_MS:
        raise UserError(
            f"{option} is a time since 1970, ISO 8601 (2026-01-31T12:00:00Z; UTC if it does not say) or milliseconds,"
            f" not {text!r}",
            EXIT_USAGE,
        )
    return moment_ms


def parse_duration_ms(text: str, option: str) -> int:
    """Milliseconds in PnDTnHnMnS. Raises UserError, wrong usage, for anything else."""
    found = _DURATION.fullmatch(text)
    if found is None or any(len(number) > _DIGITS_MAX for number in found.groups("")):
        raise UserError(f"{option} is PnDTnHnMnS, such as PT30M or P7D, not {text!r}", EXIT_USAGE)
    *whole, fraction = found.groups("0")
    return sum(int(number) * ms for number, ms in zip(whole, _MS_OF, strict=True)) + int(
        f"{fraction:0<3}"[:3]
    )
