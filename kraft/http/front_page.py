"""The plain page at `/` of a node, for whoever does not ask for the console: what the node is, and its other pages.

Plain HTML without scripts, made anew for each request; `kraft.http.app` serves it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_FACTS = (
    ("cluster", "cluster_id"),
    ("roles", "roles"),
    ("controller", "controller_id"),
    ("topics", "topics"),
    ("partitions", "partitions"),
    ("under-replicated", "under_replicated"),
    ("without a leader", "leaderless_count"),
)
"""What a line is called, and its key in the document of `/api/cluster`."""


def front_page(
    document: Mapping[str, Any], reasons: Sequence[str], warnings: Sequence[str], pages: Mapping[str, str]
) -> str:
    """HTML from the document of `/api/cluster`, why the node does not serve, what it has lost, and what each page, by
    its path, is for."""
    title = f"kraft node {_text(document.get('node_id'))}"
    state = "serves" if not reasons else f"does not serve: {_text(reasons)}"
    facts = [(name, document[key]) for name, key in _FACTS if key in document]
    lines = [f"<dt>state</dt><dd>{state}</dd>"]
    lines += [f"<dt>warning</dt><dd>{_text(warning)}</dd>" for warning in warnings]
    lines += [f"<dt>{name}</dt><dd>{_text(value)}</dd>" for name, value in facts]
    links = [f'<li><a href="{path}">{path}</a> {escape(text)}</li>' for path, text in pages.items()]
    return "\n".join(
        [
            f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>',
            "<style>body { font: 1em/1.5 sans-serif; margin: 2em } dt { float: left; width: 10em }</style>",
            f"<h1>{title}</h1>\n<dl>",
            *lines,
            "</dl>\n<ul>",
            *links,
            "</ul>\n</html>\n",
        ]
    )


def _text(value: Any) -> str:
    """A value of JSON for people."""
    if isinstance(value, list | tuple):
        return escape(", ".join(map(str, value)))
    return "-" if value is None else escape(str(value))
