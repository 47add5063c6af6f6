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


def pytest_configure(config: pytest.Config) -> None:
    """Says what the marker means."""
    config.addinivalue_line(
        "markers",
        "kraft_cluster(**keywords): what the fixture kraft_cluster passes to kraft.testing.cluster, as secure=True",
    )


if find_spec("pytest_asyncio") is not None:
    import pytest_asyncio

    @pytest_asyncio.fixture
    async def kraft_cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
        """Three nodes on the test's event loop, behind relays, so that their network can be hurt; clients that block
        belong in threads (`asyncio.to_thread`). `@pytest.mark.kraft_cluster(secure=True)` on a test asks for something
        else: its keywords are those of `kraft.testing.cluster`."""
        from kraft.testing.cluster import cluster

        marker = request.node.get_closest_marker("kraft_cluster")
        asked = {} if marker is None else marker.kwargs
        async with cluster(**{"nodes": 3, "behind_relays": True, **asked}) as running:
            yield running

else:

    @pytest.fixture
    def kraft_cluster() -> None:
        """Says what is missing."""
        pytest.fail("the fixture kraft_cluster needs pytest-asyncio: pip install 'kraft[testing]'")
