"""Keys of server.properties as environment variables, by the rule of Kafka's container images.

KAFKA_ stands before a key in capitals, `_` for a dot, `__` for an underscore, `___` for a dash: KAFKA_LOG_DIRS is
log.dirs. What maps to no key is left alone, since KAFKA_HEAP_OPTS and KAFKA_HOME belong to others. Pure; `kraft.config`
puts what is found over the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

PREFIX: Final = "KAFKA_"
_OF_OTHERS: Final = ("KAFKA_PORT", "KAFKA_HOST_NAME")
"""They would be old keys, and are variables of applications, or of Kubernetes beside a service called kafka."""


def keys_from_environment(
    environment: Mapping[str, str], is_known: Callable[[str], bool]
) -> dict[str, tuple[str, str]]:
    """The variables that set a known key, in alphabetical order: variable → (key, value)."""
    found = {}
    for variable, value in sorted(environment.items()):
        if variable.startswith(PREFIX) and variable not in _OF_OTHERS:
            key = _key(variable.removeprefix(PREFIX))
            if is_known(key):
                found[variable] = (key, value)
    return found


def _key(text: str) -> str:
    return text.lower().replace("_", ".").replace("...", "-").replace("..", "_")
