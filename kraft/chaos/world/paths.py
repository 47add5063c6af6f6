"""Paths of simulated disks: absolute, with slashes. Pure."""

from __future__ import annotations

from functools import lru_cache


def is_below(path: str, folder: str) -> bool:
    """Whether a path is that of a folder, or of something in it."""
    return folder == "/" or path == folder or path.startswith(f"{folder}/")


@lru_cache(maxsize=4096)
def parts_of(path: str) -> tuple[str, ...]:
    """The names on the way from the root. Raises ValueError for a relative path."""
    if not path.startswith("/"):
        raise ValueError(f"paths of a simulated disk are absolute, not {path!r}")
    return tuple(part for part in path.split("/") if part)
