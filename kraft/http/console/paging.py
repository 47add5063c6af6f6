"""Lists of the console: which rows a request wants, in which order, and which page of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

PAGE_SIZE: Final = 50
PAGE_SIZE_MAX: Final = 500
PAGE_MAX: Final = 1_000_000
Row = TypeVar("Row")


class QueryError(ValueError):
    """A parameter is wrong; the text says which and what it may be."""


class Page(NamedTuple):
    """What is wanted. `page` counts from 1; `q` is in lower case."""

    page: int
    page_size: int
    sort: str
    descends: bool
    q: str

    def document(self, total: int) -> dict[str, Any]:
        return {
            "page": self.page,
            "page_size": self.page_size,
            "sort": self.sort,
            "order": "desc" if self.descends else "asc",
            "total": total,
        }

    def slice(self, rows: Sequence[Row]) -> Sequence[Row]:
        first = (self.page - 1) * self.page_size
        return rows[first : first + self.page_size]

    def wants(self, name: str) -> bool:
        return self.q in name.lower()


def page_of(query: Mapping[str, str], sorts: Collection[str], default: str) -> Page:
    """From the parameters of a request. Raises QueryError."""
    sort = query.get("sort", default)
    if sort not in sorts:
        raise QueryError(f"sort={sort[:50]!r} is none of {', '.join(sorts)}")
    order = query.get("order", "asc")
    if order not in ("asc", "desc"):
        raise QueryError(f"order={order[:50]!r} is neither asc nor desc")
    return Page(
        whole_number(query, "page", 1, 1, PAGE_MAX),
        whole_number(query, "page_size", PAGE_SIZE, 1, PAGE_SIZE_MAX),
        sort,
        order == "desc",
        query.get("q", "").lower(),
    )


def whole_number(query: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    """Raises QueryError."""
    text = query.get(name)
    if text is None:
        return default
    try:
        number = int(text) if text.isascii() and len(text) < 20 else lowest - 1
    except ValueError:
        number = lowest - 1
    if not lowest <= number <= highest:
        raise QueryError(f"{name}={text[:50]!r} is not a number from {lowest} to {highest}")
    return number


def in_order(rows: Sequence[Row], key: Callable[[Row], Any], *, descends: bool) -> list[Row]:
    """Sorted; the rows that have no value come last. Equal ones stay in their order."""
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    return [*sorted(known, key=key, reverse=descends), *unknown]


def chunks(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    return (rows[at : at + size] for at in range(0, len(rows), size))
