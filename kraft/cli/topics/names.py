"""The topics that a command names: one by its name, several by a regular expression, or all. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kraft.cli.shared.options import require_text
from kraft.protocol.schemas.metadata import MetadataResponseTopic
from kraft.user_error import EXIT_USAGE, UserError

_PATTERN_SIGNS = frozenset("*+?[](){}|^$\\")
"""No name has them. A dot alone makes no expression: names do have dots."""


class TopicChoice:
    """What is chosen, and what to ask a broker for it."""

    def __init__(self, text: str | None) -> None:
        """`text` is a name, an expression that whole names have to match, or None for all. Raises UserError."""
        self._pattern: re.Pattern[str] | None = None
        self.asked: list[str] | None = None
        """The names to ask for; None: all."""
        self.none = "there is no topic"
        """What to say where nothing is found."""
        if text is None:
            return
        require_text(text, "the topic's name")
        if not _PATTERN_SIGNS & set(text):
            self.asked = [text]
            return
        self.none = f"no topic matches {text}"
        try:
            self._pattern = re.compile(text)
        except re.error as error:
            raise UserError(f"{text!r} is no regular expression: {error}", EXIT_USAGE) from error

    @property
    def is_all(self) -> bool:
        return self.asked is None and self._pattern is None

    @property
    def is_one(self) -> bool:
        """Whether one topic is named, which has to be there."""
        return self.asked is not None

    def among(self, topics: Iterable[MetadataResponseTopic]) -> list[MetadataResponseTopic]:
        """The chosen ones of those that a broker has answered with, by name."""
        found = (topic for topic in topics if self._has(topic.name or ""))
        return sorted(found, key=lambda topic: topic.name or "")

    def _has(self, name: str) -> bool:
        if self.asked is not None:
            return name in self.asked
        return self._pattern is None or self._pattern.fullmatch(name) is not None
