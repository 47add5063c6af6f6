"""The modules of the product as they stand in the tree, for tests of the tree itself."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def product_modules() -> dict[str, Path]:
    """The file of every module, by dotted name; a package is its `__init__.py`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    modules = {}
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


@cache
def syntax_of(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(product_modules()[module].read_text())
