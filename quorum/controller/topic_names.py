"""The rules for topic names, in the words that Kafka's users know, and which names are the cluster's own."""

from __future__ import annotations

import string

MAX_TOPIC_NAME_LENGTH = 249
"""With it `<topic>-<partition>` and its suffixes fit into a file name of 255 bytes."""

_LEGAL = frozenset(string.ascii_letters + string.digits + "._-")

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
_INTERNAL = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE))


def is_internal(name: str) -> bool:
    """Whether a topic belongs to the cluster itself: coordinators alone write to it, clients may read it."""
    return name in _INTERNAL


def topic_name_problem(name: str) -> str | None:
    """A sentence on why the name is illegal; None when it is legal."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return "Topic name is invalid: '.' or '..' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return (
            f"Topic name is invalid: the length of '{name[:MAX_TOPIC_NAME_LENGTH]}…' is longer than the max "
            f"allowed length {MAX_TOPIC_NAME_LENGTH}"
        )
    if not _LEGAL.issuperset(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None
