"""What the broker's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.broker_world import BrokerWorld


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    """A broker that is not started yet."""
    made = BrokerWorld()
    yield made
    await made.close()
    assert made.halts == []
