"""The files of the console: read once, served by name from memory, never from a path that a request says.

`index.html` names the others as `/static/NAME`; it is served with `?v=HASH` behind each such name that is a file, so
that browsers may keep it for ever. Modules that import each other do so by relative names, without a hash, and are
asked for again with their ETag.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from aiohttp import web

INDEX: Final = "index.html"
TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ico": "image/x-icon",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json; charset=utf-8",
    "md": "text/plain; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "woff2": "font/woff2",
}
"""What is served; a file of another type is no part of the console."""
FOR_EVER: Final = "public, max-age=31536000, immutable"
ASK_AGAIN: Final = "no-cache"
_NAMED: Final = re.compile(rb'(["\'])/static/([A-Za-z0-9._/-]+)\1')


class StaticFile(NamedTuple):
    """One file. `etag` is a hash of its content."""

    content: bytes
    content_type: str
    etag: str


def manifest(folder: Traversable) -> dict[str, StaticFile]:
    """The files in a folder and below it, by their names from there."""
    found = {name: _file(name, data) for name, data in _walk(folder, "")}
    if INDEX in found:
        found[INDEX] = _file(INDEX, _with_hashes(found[INDEX].content, found))
    return found


@cache
def console_files() -> Mapping[str, StaticFile]:
    """Those that are installed."""
    return manifest(files("kraft.http") / "static")


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        name = prefix + entry.name
        if entry.is_dir():
            yield from _walk(entry, f"{name}/")
        elif entry.name.rpartition(".")[2] in TYPES:
            yield name, entry.read_bytes()


def _file(name: str, data: bytes) -> StaticFile:
    return StaticFile(data, TYPES[name.rpartition(".")[2]], hashlib.sha256(data).hexdigest()[:16])


def _with_hashes(page: bytes, found: Mapping[str, StaticFile]) -> bytes:
    def hashed(match: re.Match[bytes]) -> bytes:
        file = found.get(match[2].decode())
        version = b"" if file is None else b"?v=" + file.etag.encode()
        return match[1] + b"/static/" + match[2] + version + match[1]

    return _NAMED.sub(hashed, page)


def answer(request: web.Request, file: StaticFile) -> web.Response:
    """One file, or that it has not changed."""
    is_versioned = request.query.get("v") == file.etag
    headers = {"ETag": f'"{file.etag}"', "Cache-Control": FOR_EVER if is_versioned else ASK_AGAIN}
    if f'"{file.etag}"' in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.content, headers={**headers, "Content-Type": file.content_type})
