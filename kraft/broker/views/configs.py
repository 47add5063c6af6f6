"""Configs as pages show them: CONFIG of docs/console-api.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kraft.protocol.schemas.configs import ConfigSource, ConfigType, DescribeConfigsResourceResult


def config_rows(entries: Iterable[DescribeConfigsResourceResult]) -> list[dict[str, Any]]:
    """By name."""
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "source": ConfigSource(entry.config_source).name,
            "is_default": entry.config_source == ConfigSource.DEFAULT_CONFIG,
            "is_sensitive": entry.is_sensitive,
            "is_read_only": entry.read_only,
            "type": ConfigType(entry.config_type).name,
            "documentation": entry.documentation,
            "synonyms": [
                {"name": one.name, "value": one.value, "source": ConfigSource(one.source).name}
                for one in entry.synonyms
            ],
        }
        for entry in sorted(entries, key=lambda entry: entry.name)
    ]
