"""The pytest plug-in: `kraft_cluster`, a running three-node cluster inside the test's process.

pytest loads it wherever kraft is installed. So it imports nothing of kraft, and nothing of pytest-asyncio, until a test
uses the fixture.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kraft.testing.cluster import Cluster

if find_spec("pytest_asyncio") is not None:
    import pytest_asyncio

    @pytest_asyncio.fixture
    async def kraft_cluster() -> AsyncIterator[Cluster]:
        """Three nodes on the test's event loop, behind relays, so that their network can be hurt; clients that block
        belong in threads (`asyncio.to_thread`)."""
        from kraft.testing.cluster import cluster

        async with cluster(nodes=3, behind_relays=True) as running:
            yield running

else:

    @pytest.fixture
    def kraft_cluster() -> None:
        """Says what is missing."""
        pytest.fail("the fixture kraft_cluster needs pytest-asyncio: pip install 'kraft[testing]'")
