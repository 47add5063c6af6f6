"""The pytest plug-in: `kraft_cluster`, a running three-node cluster inside the test's process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    from kraft.testing.cluster import Cluster


@pytest_asyncio.fixture
async def kraft_cluster() -> AsyncIterator[Cluster]:
    """Three nodes on the test's event loop; clients that block belong in threads (`asyncio.to_thread`)."""
    from kraft.testing.cluster import cluster

    async with cluster(nodes=3) as running:
        yield running
