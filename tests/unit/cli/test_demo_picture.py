"""The demo's picture, of figures that a table may give."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from kraft.cli.demo.picture import Event, Figures, draw

HOST = Figures(
    1_000,
    0.5,
    {0: {0: 3, 2: 1}, 5: {1: 4}},
    {
        "user": [(0.2, 30.0), (0.4, 90.0)],
        "system": [(0.2, 5.0), (0.4, 10.0)],
        "iowait": [(0.2, 0.0), (0.4, 0.0)],
    },
    {"used": [(0.2, 3.0)], "cache": [(0.2, 1.0)], "total": [(0.2, 8.0)]},
    {"lo": [(0.2, 1.5), (0.4, 2.5)]},
)
NOTHING = Figures(0, 0.001, {}, {}, {}, {})
FILES = HOST._replace(cpu={}, memory={}, network={})


def size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


@pytest.mark.parametrize(
    ("figures", "pixels"),
    [
        (HOST, (1320, 825)),
        (HOST._replace(network={}), (1320, 825)),
        (FILES, (1100, 495)),
        (NOTHING, (1100, 495)),
    ],
    ids=["host", "a host without a network", "files", "an empty table"],
)
def test_it_is_drawn(figures: Figures, pixels: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / "new" / "picture.png"
    draw(figures, "title", path, Event("broker 1 killed", 1_400))
    assert size(path.read_bytes()) == pixels
    before = path.read_bytes()
    draw(figures, "title", path)
    assert path.read_bytes() != before, "the event is marked"
