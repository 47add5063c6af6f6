"""Placeholder written during integration."""

from __future__ import annotations

from typing import Any

from kraft.environment import Environment


class HttpServer:
    def __init__(self, view: Any, environment: Environment) -> None:
        self.view = view

    async def start(self, address: str) -> None:
        return None

    async def close(self) -> None:
        return None
