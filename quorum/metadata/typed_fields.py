"""The check of each field of a dataclass, from the type that the field is declared with.

`Annotated[int, check]` names the check of a value; a plain int, float, str, bytes or bool has one that any such value
of the wire's range passes. `X | None`, `tuple[X, ...]` and `tuple[X, Y]` are made of the checks of their parts. Used at
import by the codecs of records and of messages: what a node reads has the types that it declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from quorum.metadata import wire
from quorum.metadata.wire import Check

_OfDataclass = Callable[[type[Any]], Check]
_SCALARS: Mapping[Any, Check] = MappingProxyType(
    {
        int: wire.integer(wire.INT64_MIN, wire.INT64_MAX),
        float: wire.number,
        str: wire.text(),
        bytes: wire.binary,
        bool: wire.boolean,
    }
)


def field_checks(dataclass: type[Any], of_dataclass: _OfDataclass | None = None) -> dict[str, Check]:
    """By name, in the order of declaration. `of_dataclass` gives the check of a dataclass inside this one.

    Raises TypeError for a type that has no check.
    """
    hints = get_type_hints(dataclass, include_extras=True)
    return {field.name: _check_of(hints[field.name], of_dataclass) for field in fields(dataclass)}


def _check_of(hint: Any, of_dataclass: _OfDataclass | None) -> Check:
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        check: Check = hint.__metadata__[0]
        return check
    if of_dataclass is not None and is_dataclass(hint) and isinstance(hint, type):
        return of_dataclass(hint)
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        (there,) = (argument for argument in arguments if argument is not NoneType)
        return wire.optional(_check_of(there, of_dataclass))
    if origin is tuple and arguments[-1] is Ellipsis:
        return wire.tuple_of(_check_of(arguments[0], of_dataclass))
    if origin is tuple:
        return wire.fixed_tuple(tuple(_check_of(argument, of_dataclass) for argument in arguments))
    raise TypeError(f"no check for a field of type {hint}")
