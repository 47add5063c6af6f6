"""How `kraft consume` shows a record: --format, and the object of --json."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

from kraft.cli.shared.documents import Document
from kraft.cli.shared.escapes import unescape
from kraft.cli.shared.options import require_text
from kraft.user_error import EXIT_USAGE, UserError

Render = Callable[[Any], bytes]
"""From a message of librdkafka."""

FORMAT_HELP = (
    "%t topic %p partition %o offset %k key %v value %T time (ms) %h headers; %xk %xv in hexadecimal;"
    " %K %S bytes of key, value (null: -1); \\n \\t \\xHH."
)
_FIELD = re.compile(r"%(x[kv]|x|.|$)", re.DOTALL)


def compile_format(text: str, null: bytes = b"") -> Render:
    """The function that renders a message; ends each with a newline unless the format does. `null` stands for keys,
    values and values of headers that are null. Raises UserError, wrong usage."""
    require_text(text, "--format")
    fields = _fields(null)
    parts: list[bytes | Render] = []
    position = 0
    for found in _FIELD.finditer(text):
        parts.append(unescape(text[position : found.start()], "--format"))
        name = found[1]
        if name == "%":
            parts.append(b"%")
        elif name in fields:
            parts.append(fields[name])
        else:
            known = " %".join(fields)
            raise UserError(f"--format does not know %{name}; it knows %{known} and %%", EXIT_USAGE)
        position = found.end()
    last = unescape(text[position:], "--format")
    parts.append(last if last.endswith(b"\n") else last + b"\n")
    return lambda message: b"".join([part if isinstance(part, bytes) else part(message) for part in parts])


def _fields(null: bytes) -> dict[str, Render]:
    def shown(data: bytes | None) -> bytes:
        return null if data is None else data

    def in_hex(data: bytes | None) -> bytes:
        return null if data is None else data.hex().encode()

    def length(data: bytes | None) -> bytes:
        return b"-1" if data is None else b"%d" % len(data)

    return {
        "t": lambda m: m.topic().encode(),
        "p": lambda m: b"%d" % m.partition(),
        "o": lambda m: b"%d" % m.offset(),
        "k": lambda m: shown(m.key()),
        "v": lambda m: shown(m.value()),
        "T": lambda m: b"%d" % m.timestamp()[1],
        "h": lambda m: b",".join(key.encode() + b"=" + shown(value) for key, value in m.headers() or []),
        "xk": lambda m: in_hex(m.key()),
        "xv": lambda m: in_hex(m.value()),
        "K": lambda m: length(m.key()),
        "S": lambda m: length(m.value()),
    }


def render_json(message: Any) -> bytes:
    """One line: the object that `document` gives."""
    return json.dumps(document(message)).encode() + b"\n"


def document(message: Any) -> Document:
    """{topic, partition, offset, timestamp (ms, or null), key, value, headers: [{key, value}]}; bytes as `text`."""
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    kind, timestamp_ms = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        "key": text(message.key()),
        "value": text(message.value()),
        "headers": [{"key": key, "value": text(value)} for key, value in message.headers() or []],
    }


def text(data: bytes | None) -> str | dict[str, str] | None:
    """UTF-8 as text, other bytes as {"base64": …}, null as null."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
