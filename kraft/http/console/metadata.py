"""`/api/metadata` and `/api/metadata/log`: the image as a tree, and its newest changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, unquote

from kraft.config_keys import CONFIG_KEYS
from kraft.http.console.cluster import Cluster, Document
from kraft.http.console.paging import Page
from kraft.metadata_view.documents import HIDDEN, record_document
from kraft.metadata_view.tree import TreeFolder, TreeNode, TreeValue, metadata_tree
from quorum.metadata.image import MetadataImage
from quorum.metadata.record_codec import first_records, record_count
from quorum.metadata.records import Config
from quorum.recent_changes import RecentChange

RECORDS_MAX: Final = 200
"""Of one entry that are shown."""
ANSWER_RECORDS_MAX: Final = 1_000
"""Of all entries of an answer, the newest first: some 300 KB of JSON."""
DEPTH_MAX: Final = 16
_SECRETS: Final = tuple(name for name, key in CONFIG_KEYS.items() if key.sensitive)


class Metadata:
    """Of one node's console."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tree: tuple[MetadataImage, TreeFolder] | None = None

    def at(self, path: str, page: Page) -> Document | None:
        """The document of `/api/metadata`; None if there is no such path."""
        image = self._cluster.image
        if self._tree is None or self._tree[0] is not image:
            self._tree = (image, metadata_tree(image, "the node's image"))
        names = [unquote(name) for name in path.split("/") if name][:DEPTH_MAX]
        node: TreeNode = self._tree[1]
        for name in names:
            child = node.children.get(name) if isinstance(node, TreeFolder) else None
            if child is None:
                return None
            node = child
        here = "/" + "/".join(map(_quoted, names))
        children = node.children if isinstance(node, TreeFolder) else {}
        wanted = [name for name in children if page.wants(name)]
        return {
            "path": here,
            "offset": image.offset,
            "epoch": image.epoch,
            "value": _value(names, node),
            **page.document(len(wanted)),
            "children": [_child(here, name, [*names, name], children[name]) for name in page.slice(wanted)],
        }

    async def log(self, after: int, limit: int) -> Document:
        """The document of `/api/metadata/log`."""
        recent = self._cluster.recent
        entries: list[Document] = []
        left = ANSWER_RECORDS_MAX
        for change in reversed(() if recent is None else recent.after(after, limit)):
            document = entry_document(change, min(RECORDS_MAX, left))
            left = max(0, left - len(document["records"]))
            entries.append(document)
            await asyncio.sleep(0)
        entries.reverse()
        return {
            "offset": self._cluster.image.offset,
            "oldest_offset": None if recent is None else recent.oldest_offset,
            "entries": entries,
        }


def _child(here: str, name: str, names: list[str], node: TreeNode) -> Document:
    return {
        "name": name,
        "path": f"{here.rstrip('/')}/{_quoted(name)}",
        "children": node.size if isinstance(node, TreeFolder) else 0,
        "value": _value(names, node),
    }


def _value(names: list[str], node: TreeNode) -> Any:
    if not isinstance(node, TreeValue):
        return None
    return HIDDEN if names[0] == "configs" and is_secret(names[-1]) else node.content


def _quoted(name: str) -> str:
    return quote(name, safe=" !\"#$&'()*+,-.:;<=>?@[\\]^_`{|}~")


def is_secret(key: str) -> bool:
    """Whether the value of a config, also one with a listener's prefix, is nobody's to see."""
    return key.endswith(_SECRETS)


def entry_document(change: RecentChange, records_max: int) -> Document:
    """An entry of `/api/metadata/log`."""
    entry, at_ms = change
    records = list(_records(entry.records, records_max))
    return {"offset": entry.offset, "epoch": entry.epoch, "at_ms": at_ms, "records": records}


def _records(data: bytes, records_max: int) -> Iterator[Document]:
    for record in first_records(data, records_max):
        fields = record_document(record)
        if isinstance(record, Config) and record.value is not None and is_secret(record.key):
            fields["value"] = HIDDEN
        yield {"type": fields.pop("type"), "fields": fields}
    left_out = record_count(data) - records_max
    if left_out > 0:
        yield {"type": "…", "fields": {"left_out": left_out}}
