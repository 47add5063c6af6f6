"""The comparison as one SVG file, for light and dark pages: a row a run, a column a producer, three bars a cell.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

from kraft.chaos.experiments.comparison import ACKS, ACKS_NAMES, Cell, Row, seconds

LEFT: Final = 430
COLUMN: Final = 180
BAR_MAX: Final = 104
HEAD: Final = 92
LINE: Final = 15
ROW: Final = 3 * LINE + 15
FOOT: Final = 44
WIDTH: Final = LEFT + len(ACKS) * COLUMN + 16
STYLE: Final = """
svg { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --soft: #5b6570; --line: #d8dde3;
  --lost: #c0332b; --doubled: #b7791f; --waited: #2f6fd0; }
@media (prefers-color-scheme: dark) { svg { --paper: #14171b; --ink: #e4e8ec; --soft: #98a2ad; --line: #333a42;
  --lost: #ff7b72; --doubled: #e3b341; --waited: #6ea8fe; } }
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--ink); }
.title { font-size: 16px; font-weight: 600; } .head { font-weight: 600; } .soft { fill: var(--soft); }
.zero { fill: var(--soft); opacity: .7; } .line { stroke: var(--line); } .paper { fill: var(--paper); }
.lost { fill: var(--lost); } .doubled { fill: var(--doubled); } .waited { fill: var(--waited); }
"""
Measure = tuple[str, Callable[[Cell], int], Callable[[Cell], str]]
MEASURES: Final[Sequence[Measure]] = (
    ("lost", lambda cell: cell.lost, lambda cell: str(cell.lost)),
    ("doubled", lambda cell: cell.doubled, lambda cell: str(cell.doubled)),
    ("waited", lambda cell: cell.unavailable_ms or 0, seconds),
)
NAMES: Final = {
    "lost": "records lost",
    "doubled": "records doubled",
    "waited": "longest wait for an acknowledgement",
}


def picture(rows: Sequence[Row], caption: str) -> str:
    """The SVG; `caption` is a line at its foot."""
    height = HEAD + len(rows) * ROW + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' role="img" aria-label="acks, min.insync.replicas and faults: lost, doubled, unavailable">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        '<text class="title" x="16" y="28">What acks and min.insync.replicas cost and save</text>',
        *_legend(),
        *(
            f'<text class="head" x="{_x(number)}" y="{HEAD - 12}">{ACKS_NAMES[acks]}</text>'
            for number, acks in enumerate(ACKS)
        ),
    ]
    tops = {
        name: max([value(cell) for row in rows for cell in row.cells], default=0) or 1
        for name, value, _ in MEASURES
    }
    for number, row in enumerate(rows):
        parts += _row(
            row, HEAD + number * ROW, tops, is_first=not number or rows[number - 1].case != row.case
        )
    foot = HEAD + len(rows) * ROW + 24
    parts.append(f'<text class="soft" x="16" y="{foot}">{escape(caption)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(column: int) -> int:
    return LEFT + column * COLUMN


def _legend() -> Iterator[str]:
    x = 16
    for name, text in NAMES.items():
        yield f'<rect class="{name}" x="{x}" y="42" width="12" height="9"/>'
        yield f'<text class="soft" x="{x + 18}" y="51">{text}</text>'
        x += 42 + 7 * len(text)


def _row(row: Row, top: int, tops: dict[str, int], *, is_first: bool) -> Iterator[str]:
    if is_first:
        yield f'<line class="line" x1="16" x2="{WIDTH - 16}" y1="{top - 4}" y2="{top - 4}"/>'
        yield f'<text class="head" x="16" y="{top + 14}">{escape(row.title)}</text>'
    yield f'<text x="16" y="{top + 14 + 2 * LINE}">min.insync.replicas={row.min_insync}{_mark(row)}</text>'
    for column, cell in enumerate(row.cells):
        for number, (name, value, text) in enumerate(MEASURES):
            y, amount = top + 4 + number * LINE, value(cell)
            width = max(2, round(BAR_MAX * amount / tops[name])) if amount else 0
            if width:
                yield f'<rect class="{name}" x="{_x(column)}" y="{y}" width="{width}" height="11"/>'
            shade = "" if amount else ' class="zero"'
            yield f'<text{shade} x="{_x(column) + width + 6}" y="{y + 10}">{text(cell)}</text>'


def _mark(row: Row) -> str:
    return "" if row.verdict == "held" else f" ({row.verdict})"
