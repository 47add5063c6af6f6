"""Golden scripts: a story as commands and the output that they must give.

A script is blocks of commands, a line `---`, and the expected output, up to an empty line. Lines that
start with `#` are prose. With KRAFT_REWRITE_SCRIPTS=1 the expected output is written anew; review the
difference like code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def scripts_beside(test_file: str) -> list[Path]:
    """The stories under `scripts/` next to a test module."""
    found = sorted((Path(test_file).parent / "scripts").glob("*.txt"))
    assert found, f"no scripts beside {test_file}"
    return found


def check_script(path: Path, play: Callable[[str], list[str]]) -> None:
    """Plays every command with `play`, which returns lines of output, and compares."""
    text = path.read_text()
    rewritten = []
    for block in text.strip("\n").split("\n\n"):
        rewritten.append(_play_block(block, play))
    result = "\n\n".join(rewritten) + "\n"
    if os.environ.get("KRAFT_REWRITE_SCRIPTS") == "1":
        path.write_text(result)
    assert result == text


def _play_block(block: str, play: Callable[[str], list[str]]) -> str:
    lines = block.split("\n")
    commands = lines[: lines.index("---")] if "---" in lines else lines
    output: list[str] = []
    played = False
    for line in commands:
        if not line.startswith("#"):
            output += play(line)
            played = True
    if not played:
        return "\n".join(commands)
    return "\n".join([*commands, "---", *(output or ["ok"])])
