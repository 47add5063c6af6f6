"""Where experiments come from: a file of the user's, or the library that is shipped with kraft, by name."""

from __future__ import annotations

import difflib
from importlib.resources import files
from pathlib import Path
from typing import Final

from kraft.chaos.experiments.document import Experiment, ExperimentError, load
from kraft.user_error import EXIT_USAGE, UserError

SUFFIX: Final = ".yaml"


def library() -> dict[str, Experiment]:
    """The shipped experiments, by name, in order of their names."""
    found = {}
    for entry in sorted((files(__package__) / "library").iterdir(), key=lambda one: one.name):
        if entry.name.endswith(SUFFIX):
            found[entry.name.removesuffix(SUFFIX)] = load(entry.read_text(encoding="utf-8"))
    return found


def find(name: str) -> Experiment:
    """The experiment of a file, or of the library. Raises UserError with the file and the line."""
    path = Path(name)
    if path.suffix in (SUFFIX, ".yml") or "/" in name:
        try:
            return load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}", EXIT_USAGE) from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is no text in UTF-8", EXIT_USAGE) from error
        except ExperimentError as error:
            raise UserError(f"{path}, {error}", EXIT_USAGE) from error
    entry = files(__package__) / "library" / f"{name}{SUFFIX}"
    if entry.is_file():
        return load(entry.read_text(encoding="utf-8"))
    names = list(library())
    close = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}; a file ends in {SUFFIX}"
    raise UserError(f"there is no experiment {name!r}: {hint}", EXIT_USAGE)


def lesson(experiment: Experiment) -> str:
    """The comment at the top of the file: what it teaches, at length."""
    lines = []
    for line in experiment.text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return "\n".join(lines).strip()
