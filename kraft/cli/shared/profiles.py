"""Profiles: clusters by name, each with its brokers and how they are spoken to, kept for all folders.

A profile is a file as `--command-config` takes one, in `$XDG_CONFIG_HOME/kraft/profiles` or
`~/.config/kraft/profiles`, for its owner alone. One of them may be in use: it counts where nothing nearer names a
cluster (`kraft.cli.shared.bootstrap` has the order).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kraft.local_cluster.identities import write_private
from kraft.user_error import EXIT_USAGE, UserError

PROFILE_OPTION: Final = "--profile"
PROFILE_VARIABLE: Final = "KRAFT_PROFILE"
_SUFFIX: Final = ".properties"
_IN_USE: Final = "profile"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def profile_file(name: str) -> Path:
    """Where a profile is, or would be. Raises UserError for what is no name of one."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"a profile's name has letters, digits, '.', '_' and '-', and {name!r} is none", EXIT_USAGE
        )
    return _home() / "profiles" / f"{name}{_SUFFIX}"


def existing_profile(name: str) -> Path:
    """The file of a profile that is there. Raises UserError."""
    path = profile_file(name)
    if not path.is_file():
        known = ", ".join(profile_names()) or "none"
        raise UserError(f"there is no profile {name}; there are: {known}", EXIT_USAGE)
    return path


def profile_names() -> list[str]:
    """All of them, sorted."""
    found = (path.name.removesuffix(_SUFFIX) for path in (_home() / "profiles").glob(f"*{_SUFFIX}"))
    return sorted(name for name in found if _NAME.fullmatch(name))


def profile_in_use() -> str | None:
    """The name that `use_profile` was given last, if there is such a profile."""
    try:
        name = (_home() / _IN_USE).read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeError) as error:
        raise UserError(f"cannot read {_home() / _IN_USE}: {error}") from error
    return name if _NAME.fullmatch(name) and profile_file(name).is_file() else None


def use_profile(name: str | None) -> None:
    """From now on it counts where nothing nearer does; None: none does. Raises UserError."""
    if name is not None:
        existing_profile(name)
    _write(_home() / _IN_USE, f"{name or ''}\n")


def write_profile(name: str, values: Mapping[str, str]) -> Path:
    """Raises UserError."""
    path = profile_file(name)
    _write(path, "".join(f"{key}={_escaped(value)}\n" for key, value in values.items()))
    return path


def remove_profile(name: str) -> None:
    """Raises UserError where there is none, or it cannot be removed."""
    path = existing_profile(name)
    is_in_use = profile_in_use() == name
    try:
        path.unlink()
    except OSError as error:
        raise UserError(
            f"cannot remove {path}: {error.strerror}. Make {path.parent} writable, and try again"
        ) from error
    if is_in_use:
        use_profile(None)


def _escaped(value: str) -> str:
    """As the format of properties has it."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{text}" if text[:1].isspace() else text


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, text.encode())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kraft"
