"""A cluster whose controllers know each other, and their brokers, by certificates."""

from __future__ import annotations

import asyncio
import random
import ssl
from pathlib import Path

import aiohttp
import pytest

from kraft.testing.cluster import CLUSTER_ID, cluster
from quorum.rpc.client import RpcClient, request_session
from quorum.rpc.envelope import RpcUnavailable

PEM = Path(__file__).parent.parent / "unit" / "network" / "localhost.pem"
MUTUAL_TLS = {
    "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
    "ssl.keystore.location": str(PEM),
    "ssl.truststore.location": str(PEM),
    "ssl.client.auth": "required",
}


async def test_three_nodes_with_certificates_form_a_cluster_that_strangers_cannot_talk_to() -> None:
    async with cluster(3, MUTUAL_TLS) as nodes:
        assert all(node.unready_reasons() == [] for node in nodes.nodes.values())
        address = nodes.nodes[1].config.voters[1]
        async with aiohttp.ClientSession() as http:
            with pytest.raises((aiohttp.ClientError, RpcUnavailable)):
                await request_session(http, address, b"of the test", random.Random(1))
        without_certificate = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(PEM))
        stranger = RpcClient(CLUSTER_ID.encode(), tls=lambda: without_certificate)
        with pytest.raises(RpcUnavailable):
            await stranger.call(address, "fetch_metadata", {}, 5.0)
        await stranger.close()
        await asyncio.gather(*(node.wait_ready() for node in nodes.nodes.values()))
