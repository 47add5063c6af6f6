"""`--add-scram` of `kraft storage format`: a user that a cluster starts with, in the form of Kafka's tool (KIP-900).

`SCRAM-SHA-256=[name=alice,password=alice-secret]`, with `iterations=N`, with `salt="BASE64"`, and with
`saltedpassword="BASE64"` instead of the password. `password=@FILE` takes the password from a file, whose last line
break does not count: what stands on a command line can be seen by everybody on the host. No error shows a secret.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from kraft.security.sasl_servers import CODES
from kraft.security.scram import DEFAULT_ITERATIONS, HASHES, salted_password, scram_keys
from quorum.metadata.records import SCRAM_KEY_BYTES, UserScramCredential
from quorum.rpc.messages import MAX_ITERATIONS, MAX_SALT_BYTES, MAX_USER_NAME_CHARACTERS, MIN_ITERATIONS

FORM: Final = "MECHANISM=[name=NAME,password=PASSWORD] or MECHANISM=[name=NAME,password=@FILE]"
_COMPONENTS: Final = frozenset(("name", "password", "salt", "iterations", "saltedpassword"))


def parse_added_user(
    text: str, read_file: Callable[[str], str], new_salt: Callable[[], bytes]
) -> UserScramCredential:
    """Raises ValueError, the end of a sentence; and what `read_file` raises."""
    mechanism, separator, rest = text.strip().partition("=")
    if not separator or not rest.startswith("[") or not rest.endswith("]"):
        raise ValueError(f"it takes {FORM}")
    if mechanism not in HASHES:
        raise ValueError(f"{mechanism} is no mechanism; use {' or '.join(HASHES)}")
    given = _components(rest[1:-1])
    name = given.get("name", "")
    if not 0 < len(name) <= MAX_USER_NAME_CHARACTERS:
        raise ValueError(f"it needs a name of 1 to {MAX_USER_NAME_CHARACTERS} characters")
    iterations = _iterations(given)
    salt = _decoded(given, "salt") if "salt" in given else new_salt()
    if not 0 < len(salt) <= MAX_SALT_BYTES:
        raise ValueError(f"a salt has 1 to {MAX_SALT_BYTES} bytes")
    salted = _salted(mechanism, given, salt, iterations, read_file)
    keys = scram_keys(mechanism, salted)
    return UserScramCredential(name, CODES[mechanism], salt, keys.stored, keys.server, iterations)


def _components(text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in text.split(","):
        key, separator, value = part.partition("=")
        if not separator or key not in _COMPONENTS or key in given:
            raise ValueError(
                f"within the brackets stand {', '.join(sorted(_COMPONENTS))}, each once, as key=value"
            )
        given[key] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    return given


def _iterations(given: dict[str, str]) -> int:
    text = given.get("iterations", str(DEFAULT_ITERATIONS))
    if not text.isdecimal() or not MIN_ITERATIONS <= int(text[:20]) <= MAX_ITERATIONS:
        raise ValueError(f"iterations is a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)


def _salted(
    mechanism: str, given: dict[str, str], salt: bytes, iterations: int, read_file: Callable[[str], str]
) -> bytes:
    if ("password" in given) == ("saltedpassword" in given):
        raise ValueError("it needs one of password and saltedpassword")
    if "saltedpassword" in given:
        if "salt" not in given:
            raise ValueError("a saltedpassword needs its salt")
        salted = _decoded(given, "saltedpassword")
        if len(salted) != SCRAM_KEY_BYTES[CODES[mechanism]]:
            raise ValueError(f"a saltedpassword of {mechanism} has {SCRAM_KEY_BYTES[CODES[mechanism]]} bytes")
        return salted
    password = given["password"]
    if password.startswith("@"):
        password = without_line_break(read_file(password[1:]))
    if not password:
        raise ValueError("the password is empty")
    return salted_password(mechanism, password, salt, iterations)


def without_line_break(text: str) -> str:
    """What a file with a password says: editors and `echo` put a line break behind it."""
    return text.removesuffix("\n").removesuffix("\r")


def _decoded(given: dict[str, str], key: str) -> bytes:
    try:
        return base64.b64decode(given[key], validate=True)
    except ValueError as error:
        raise ValueError(f"{key} is no base64") from error
