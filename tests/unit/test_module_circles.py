"""No module of the product needs, by way of others, itself: each can be read after those that it imports.

An import for types counts like any other. One inside a function does not: it is there for start-up time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.source_tree import product_modules, syntax_of


def imported_outside_of_functions(node: ast.AST) -> Iterator[str]:
    """Dotted names; of `from a import b` both `a` and `a.b`, either of which may be the module."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                inner = [f"{module}.{alias.name}" for alias in names]
                yield from (name if name in product_modules() else module for name in inner)
        yield from imported_outside_of_functions(child)


def test_modules_form_no_circles() -> None:
    modules = product_modules()
    graph = {
        module: {name for name in imported_outside_of_functions(syntax_of(module)) if name in modules}
        for module in modules
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" ← ".join(circle.args[1]))
