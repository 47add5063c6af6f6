"""Pages for users: nodes that ask for a name and a password know the users of the cluster, as soon as these change."""

from __future__ import annotations

import asyncio
import base64

import aiohttp
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from kraft.testing.cluster import cluster

WAIT_S = 60.0
LOGIN = {"http.authentication": "basic", "connection.failed.authentication.delay.ms": "1"}


async def status_of(url: str, password: str) -> int:
    given = {"Authorization": f"Basic {base64.b64encode(f'alice:{password}'.encode()).decode()}"}
    async with aiohttp.ClientSession() as http, http.get(url, headers=given) as response:
        return response.status


async def until(url: str, password: str, status: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if await status_of(url, password) == status:
                return
            await asyncio.sleep(0.02)


async def test_every_node_knows_users_that_are_added_changed_and_removed() -> None:
    async with cluster(2, LOGIN) as nodes:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})

        async def alter(*alterations: object) -> None:
            done = admin.alter_user_scram_credentials(list(alterations))
            for future in done.values():
                await asyncio.to_thread(future.result, WAIT_S)

        ports = [node.http.port for node in nodes.nodes.values() if node.http is not None]
        assert len(ports) == 2
        urls = [f"http://127.0.0.1:{port}/api/cluster" for port in ports]
        for port, url in zip(ports, urls, strict=True):
            assert await status_of(f"http://127.0.0.1:{port}/health/live", "") == 200
            assert await status_of(url, "first") == 401
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        for password in ("first", "second"):
            await alter(UserScramCredentialUpsertion("alice", info, password.encode()))
            for url in urls:
                await until(url, password, 200)
        for url in urls:
            assert await status_of(url, "first") == 401
        await alter(UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256))
        for url in urls:
            await until(url, "second", 401)
