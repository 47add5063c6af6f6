"""Which rows a request wants."""

from __future__ import annotations

import pytest

from kraft.http.console.paging import QueryError, in_order, page_of


def test_defaults() -> None:
    page = page_of({}, ("name", "size"), "name")
    assert page.document(7) == {"page": 1, "page_size": 50, "sort": "name", "order": "asc", "total": 7}
    assert page.slice(list(range(60))) == list(range(50))
    assert page.wants("anything")


def test_what_is_asked_for() -> None:
    query = {"page": "3", "page_size": "2", "sort": "size", "order": "desc", "q": "ORD"}
    page = page_of(query, ("name", "size"), "name")
    assert page.slice("abcdefg") == "ef"
    assert [name for name in ("orders", "my.Orders", "other") if page.wants(name)] == ["orders", "my.Orders"]
    assert page._replace(page=9).slice("abc") == ""


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"page": "0"}, "page='0' is not a number from 1 to 1000000"),
        ({"page_size": "501"}, "page_size='501' is not a number from 1 to 500"),
        ({"page_size": "٣"}, "page_size='٣' is not a number from 1 to 500"),
        ({"page": "9" * 5000}, "is not a number from 1 to 1000000"),
        ({"sort": "id"}, "sort='id' is none of name, size"),
        ({"order": "up"}, "order='up' is neither asc nor desc"),
    ],
)
def test_what_is_wrong_is_told(query: dict[str, str], sentence: str) -> None:
    with pytest.raises(QueryError) as error:
        page_of(query, ("name", "size"), "name")
    assert sentence in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("descends", [False, True])
def test_unknown_values_come_last(*, descends: bool) -> None:
    rows: list[tuple[str, int | None]] = [("a", None), ("b", 2), ("c", 1), ("d", None)]
    names = [name for name, _ in in_order(rows, lambda row: row[1], descends=descends)]
    assert names == (["b", "c", "a", "d"] if descends else ["c", "b", "a", "d"])
