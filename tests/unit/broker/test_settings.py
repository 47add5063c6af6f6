"""What a broker's parts are told: how descriptors are shared out."""

import asyncio

import pytest

from kraft.broker.settings import DescriptorBudget, broker_quotas, network_limits
from kraft.config import ConfigError, load_config
from tests.support.broker_world import PROPERTIES


@pytest.mark.parametrize("limit", [128, 256, 1024, 4096, 20_000, 1_048_576])
def test_connections_leave_the_disk_its_descriptors(limit: int) -> None:
    budget = DescriptorBudget.within(limit)
    assert budget.max_connections is not None
    pools = budget.max_open_files + 2 * budget.max_loaded_indexes
    left = limit - budget.max_connections - pools
    assert left >= min(1024, limit / 8)
    assert limit - budget.max_connections >= max(64, min(limit / 4, 4024))
    assert budget.max_open_files <= 1000
    assert budget.max_loaded_indexes <= 1000


def test_nothing_is_bounded_without_a_limit() -> None:
    assert DescriptorBudget.within(None) == DescriptorBudget(1000, 1000, None)
    high = DescriptorBudget.within(2**20)
    assert (high.max_open_files, high.max_loaded_indexes) == (1000, 1000)


@pytest.mark.parametrize(("said", "granted"), [("", 256), ("max.connections=700\n", 700)])
def test_listeners_share_what_the_file_leaves_open(said: str, granted: int) -> None:
    config = load_config(
        "process.roles=broker\n"
        "node.id=1\n"
        "log.dirs=/data\n"
        "listeners=PLAINTEXT://localhost:9092,OTHER://localhost:9093\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "controller.listener.names=CONTROLLER\n"
        "controller.quorum.voters=2@localhost:9094\n" + said
    )
    assert network_limits(config, DescriptorBudget.within(1024), "OTHER").max_connections == granted
    unbounded = network_limits(config, DescriptorBudget.within(None), "OTHER").max_connections
    assert unbounded == (700 if said else None)


@pytest.mark.parametrize("limit", [3, 64, 65])
def test_even_a_tiny_limit_leaves_something_of_each(limit: int) -> None:
    budget = DescriptorBudget.within(limit)
    assert min(budget.max_open_files, budget.max_loaded_indexes, budget.max_connections or 0) >= 1


def test_limits_of_single_addresses() -> None:
    overrides = "max.connections.per.ip.overrides=10.0.0.1:5,[::1]:7, ::ffff:10.0.0.2:9\n"
    limits = network_limits(load_config(PROPERTIES + overrides), DescriptorBudget(), "PLAINTEXT")
    assert limits.max_connections_of_ip == {"10.0.0.1": 5, "::1": 7, "10.0.0.2": 9}
    assert (
        network_limits(load_config(PROPERTIES), DescriptorBudget(), "PLAINTEXT").max_connections_of_ip == {}
    )


@pytest.mark.parametrize("text", ["10.0.0.1", "host:5", "10.0.0.1:many", "10.0.0.1:-1"])
def test_limits_of_single_addresses_that_make_no_sense(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not ADDRESS:COUNT, such as 10\.0\.0\.1:100"):
        load_config(PROPERTIES + f"max.connections.per.ip.overrides={text}\n")


async def test_quotas_are_of_the_windows_that_the_file_says() -> None:
    loop = asyncio.get_running_loop()
    config = load_config(PROPERTIES + "quota.window.num=5\nquota.window.size.seconds=2\n")
    quotas = broker_quotas(config, loop)
    assert quotas.windows == (5, 2000)
    assert not quotas.connections.is_limiting
    limited = load_config(PROPERTIES + "max.connection.creation.rate=10\n")
    assert broker_quotas(limited, loop).connections.is_limiting


async def test_a_listener_may_have_limits_of_its_own() -> None:
    config = load_config(
        PROPERTIES
        + "listener.name.plaintext.max.connections=7\nlistener.name.plaintext.max.connection.creation.rate=1\n"
        + "quota.window.num=1\n"
    )
    assert network_limits(config, DescriptorBudget(), "PLAINTEXT").max_connections == 7
    assert network_limits(config, DescriptorBudget(), "OTHER").max_connections is None
    connections = broker_quotas(config, asyncio.get_running_loop()).connections
    assert [connections.admit("PLAINTEXT", "h", 0).delay_ms for _ in range(2)] == [0, 1000]
    assert [connections.admit("OTHER", "h", 0).delay_ms for _ in range(2)] == [0, 0]
