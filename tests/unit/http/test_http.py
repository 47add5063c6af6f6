"""Health, metrics and cluster pages over a real loopback socket."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from kraft.broker.client_quotas import QuotasSnapshot, Throttled
from kraft.broker.metrics import BrokerMetrics
from kraft.broker.replicas.partition_health import FollowerLag
from kraft.http.app import make_app
from kraft.http.metrics import BrokerSnapshot, ControllerSnapshot, NodeMetrics
from kraft.network.request_times import PhaseTimes, RequestTimes
from kraft.protocol.api import ApiKey
from quorum.leader_elections import ElectionKind, LeaderElections
from quorum.metadata.image import EMPTY, BrokerImage, MetadataImage, PartitionImage, TopicImage
from quorum.metadata.tally import LedPartitions, PartitionCounts

Client = TestClient[aiohttp.web.Request, aiohttp.web.Application]
TOPIC = bytes(15) + b"\1"


def broker_image(broker_id: int, *, fenced: bool) -> BrokerImage:
    return BrokerImage(
        broker_id=broker_id,
        epoch=broker_id,
        incarnation_id=bytes(16),
        listeners=(),
        rack=None,
        log_dirs=(),
        fenced=fenced,
        in_controlled_shutdown=False,
    )


def image() -> MetadataImage:
    """Broker 1 leads two partitions, one of them under-replicated, and is offline for one of broker 2; one
    partition has no leader.
    """
    partitions = (
        PartitionImage(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=0, partition_epoch=0),
        PartitionImage(replicas=(1, 2), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0),
        PartitionImage((2, 1), isr=(2,), leader=2, leader_epoch=0, partition_epoch=0, offline_replicas=(1,)),
        PartitionImage((2,), isr=(2,), leader=-1, leader_epoch=0, partition_epoch=0, offline_replicas=(2,)),
    )
    return MetadataImage(
        offset=42,
        epoch=3,
        brokers={1: broker_image(1, fenced=False), 2: broker_image(2, fenced=True)},
        topics={TOPIC: TopicImage(topic_id=TOPIC, name="t", partitions=partitions)},
        topic_ids={"t": TOPIC},
        configs=EMPTY.configs,
        next_producer_id=0,
    )


def led_by_broker_1() -> LedPartitions:
    led = LedPartitions(1)
    for number, partition in enumerate(image().topics[TOPIC].partitions):
        led.update((TOPIC, number), partition, 2)
    return led


class World:
    """A node as the pages see it, in the state that a test gives it."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.lost: list[str] = []
        self.start_time_ms = 1_700_000_000_000
        self.loop_lag = PhaseTimes()
        self.counters = BrokerMetrics()
        self.broker: BrokerSnapshot | None = None
        self.controller: ControllerSnapshot | None = None

    def unready_reasons(self) -> Sequence[str]:
        return self.reasons

    def warnings(self) -> Sequence[str]:
        return self.lost

    def describe(self) -> Mapping[str, Any]:
        return {"cluster_id": "AAAAAAAAAAAAAAAAAAAAAA", "node_id": 1, "brokers": []}

    async def broker_snapshot(self) -> BrokerSnapshot | None:
        return self.broker

    def controller_snapshot(self) -> ControllerSnapshot | None:
        return self.controller


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(world, NodeMetrics(world)))) as client:
        yield client


async def scrape(client: Client) -> dict[str, float]:
    response = await client.get("/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain")
    families = text_string_to_metric_families(await response.text())
    return {sample.name: sample.value for family in families for sample in family.samples}


async def test_live_while_the_loop_turns(client: Client, world: World) -> None:
    world.reasons = ["starting"]
    response = await client.get("/health/live")
    assert response.status == 200
    assert response.headers["Cache-Control"] == "no-store"


async def test_ready_says_why_not(client: Client, world: World) -> None:
    world.reasons = ["fenced", "the quorum has no leader"]
    response = await client.get("/health/ready")
    assert response.status == 503
    assert await response.json() == {"ready": False, "reasons": ["fenced", "the quorum has no leader"]}
    world.reasons = []
    response = await client.get("/health/ready")
    assert response.status == 200
    assert await response.json() == {"ready": True, "reasons": []}
    world.lost = ["the data directory /more is lost: input/output error"]
    response = await client.get("/health/ready")
    assert (response.status, await response.json()) == (
        200,
        {"ready": True, "reasons": [], "warnings": world.lost},
    )


async def test_health_is_readiness(client: Client, world: World) -> None:
    world.reasons = ["fenced"]
    response = await client.get("/health")
    assert response.status == 503
    assert await response.json() == {"ready": False, "reasons": ["fenced"]}
    world.reasons = []
    assert (await client.get("/health")).status == 200


async def test_the_front_page_links_to_every_other(client: Client, world: World) -> None:
    world.reasons, world.lost = ["the <quorum> has no leader"], ["a & b"]
    response = await client.get("/")
    text = await response.text()
    assert (response.status, response.content_type) == (200, "text/html")
    assert "kraft node 1" in text
    assert "AAAAAAAAAAAAAAAAAAAAAA" in text
    assert "does not serve: the &lt;quorum&gt; has no leader" in text
    assert "a &amp; b" in text
    (missing,) = [(await response.json())["error"] for response in [await client.get("/nope")]]
    paths = missing.partition("there are ")[2].split(", ")
    assert set(re.findall(r'href="([^"]+)"', text)) == set(paths) - {"/"}
    for path in paths:
        assert (await client.get(path)).status in (200, 503)
    world.reasons = []
    assert "<dd>serves</dd>" in await (await client.get("/")).text()


async def test_cluster_is_one_object(client: Client) -> None:
    response = await client.get("/api/cluster")
    assert (await response.json())["cluster_id"] == "AAAAAAAAAAAAAAAAAAAAAA"


async def test_a_wrong_path_lists_the_right_ones(client: Client) -> None:
    response = await client.get("/healthz")
    assert response.status == 404
    assert "/health/ready" in (await response.json())["error"]


async def test_nothing_can_be_written(client: Client) -> None:
    assert (await client.post("/health/live")).status == 405


async def test_metrics_of_a_node_that_is_still_starting(client: Client) -> None:
    shown = await scrape(client)
    assert shown.pop("process_cpu_seconds_total") > 0
    of_roles = {name: value for name, value in shown.items() if name.startswith("kafka_")}
    assert of_roles == {"kafka_server_app_info_starttimems": 1_700_000_000_000}


async def test_metrics_of_a_broker(client: Client, world: World) -> None:
    world.counters.on_produced("t", records=10, size_bytes=1000)
    world.counters.isr_shrinks += 2
    world.broker = BrokerSnapshot(
        broker_id=1,
        counters=world.counters,
        state=3,
        partition_count=3,
        image=image(),
        led=led_by_broker_1(),
        offline_replicas=1,
        uncleanable_partitions=4,
        follower_lags={2: FollowerLag(max_records=7, sum_records=9, max_ms=math.inf, partitions=2)},
        throttled_rates={"leader": 12.5, "follower": 0.0},
    )
    samples = await scrape(client)
    assert samples["kafka_server_brokertopicmetrics_messagesin_total"] == 10
    assert samples["kafka_server_brokertopicmetrics_bytesin_total"] == 1000
    assert samples["kafka_server_replicamanager_isrshrinks_total"] == 2
    assert samples["kafka_server_replicamanager_leadercount"] == 2
    assert samples["kafka_server_replicamanager_underreplicatedpartitions"] == 1
    assert samples["kafka_server_replicamanager_underminisrpartitioncount"] == 1
    assert samples["kafka_server_replicamanager_atminisrpartitioncount"] == 1
    assert samples["kafka_server_replicamanager_reassigningpartitions"] == 0
    assert samples["kafka_server_replicamanager_followermaxlag"] == 7
    assert samples["kafka_server_replicamanager_followerlag"] == 9
    assert samples["kafka_server_replicamanager_followermaxlagms"] == math.inf
    assert samples["kafka_server_replicamanager_followerlaggingpartitions"] == 2
    assert samples["kafka_server_leaderreplication_byte_rate"] == 12.5
    assert samples["kafka_server_replicamanager_offlinereplicacount"] == 1
    assert samples["kafka_log_logcleanermanager_uncleanable_partitions_count"] == 4
    assert samples["kafka_server_replicamanager_partitioncount"] == 3
    assert samples["kafka_server_kafkaserver_brokerstate"] == 3
    world.counters.on_produced("t", records=1, size_bytes=50)
    text = await (await client.get("/metrics")).text()
    assert "kafka_server_brokertopicmetrics_bytesin_total 1050.0" in text
    assert 'kafka_server_brokertopicmetrics_bytesin_total{topic="t"} 1050.0' in text


async def test_every_counter_of_the_broker_is_shown(client: Client, world: World) -> None:
    fields = [name for name, one in BrokerMetrics.__dataclass_fields__.items() if one.metadata]
    for number, field in enumerate(fields, start=100):
        setattr(world.counters, field, number)
    world.broker = BrokerSnapshot(
        broker_id=1,
        counters=world.counters,
        state=3,
        partition_count=0,
        image=EMPTY,
        led=LedPartitions(1),
        fetch_session_evictions=99,
    )
    shown = {value for name, value in (await scrape(client)).items() if re.fullmatch("kafka_.*_total", name)}
    assert shown == set(range(99, 100 + len(fields)))


async def test_times_of_requests_are_shown_by_api_and_phase(client: Client, world: World) -> None:
    times = RequestTimes()
    times.count = 4
    for phase, duration_s in zip(
        ("queue", "local", "remote", "send"), (0.001, 0.002, 0.003, 0.004), strict=True
    ):
        getattr(times, phase).add(duration_s)
    world.broker = BrokerSnapshot(
        broker_id=1,
        counters=world.counters,
        state=3,
        partition_count=0,
        image=EMPTY,
        led=LedPartitions(1),
        request_times={ApiKey.PRODUCE: times, ApiKey.FETCH: RequestTimes()},
    )
    shown = await scrape(client)
    phases = ("requestqueuetimems", "localtimems", "remotetimems", "responsesendtimems")
    for phase, sum_ms in zip(phases, (1.0, 2.0, 3.0, 4.0), strict=True):
        name = f"kafka_network_requestmetrics_{phase}"
        assert (shown[name + "_count"], shown[name + "_sum"]) == (4, sum_ms)
    assert shown["kafka_network_requestmetrics_totaltimems_sum"] == pytest.approx(10.0)
    text = await (await client.get("/metrics")).text()
    assert 'kraft_request_local_seconds_bucket{le="0.001024",request="Produce"} 0.0' in text
    assert 'kraft_request_local_seconds_bucket{le="0.002048",request="Produce"} 1.0' in text
    assert 'kraft_request_local_seconds_bucket{le="+Inf",request="Produce"} 1.0' in text
    assert 'localtimems_count{request="Produce"} 4.0' in text
    assert 'request="Fetch"' not in text, "there was none"


async def test_metrics_of_a_controller(client: Client, world: World) -> None:
    partitions, elections = PartitionCounts(), LeaderElections()
    partitions.recount(image())
    elections.counts[ElectionKind.UNCLEAN] = 2
    elections.counts[ElectionKind.LAST_KNOWN_LEADER] = 1
    world.controller = ControllerSnapshot(
        active=True,
        leader_id=1,
        epoch=3,
        pending_proposals=5,
        image=image(),
        partitions=partitions,
        elections=elections,
    )
    samples = await scrape(client)
    prefix = "kafka_controller_kafkacontroller_"
    assert samples[prefix + "activecontrollercount"] == 1
    assert samples[prefix + "globaltopiccount"] == 1
    assert samples[prefix + "globalpartitioncount"] == 4
    assert samples[prefix + "offlinepartitionscount"] == 1
    assert samples[prefix + "preferredreplicaimbalancecount"] == 1
    assert samples["kafka_controller_controllerstats_uncleanleaderelections_total"] == 3
    assert samples[prefix + "activebrokercount"] == 1
    assert samples[prefix + "fencedbrokercount"] == 1
    assert samples["kafka_server_raft_metrics_current_leader"] == 1


async def test_elections_are_told_apart_by_their_kind(client: Client, world: World) -> None:
    elections = LeaderElections()
    for number, kind in enumerate(ElectionKind, start=1):
        elections.counts[kind] = number
    world.controller = ControllerSnapshot(
        active=True,
        leader_id=1,
        epoch=3,
        pending_proposals=0,
        image=EMPTY,
        partitions=PartitionCounts(),
        elections=elections,
    )
    text = await (await client.get("/metrics")).text()
    for number, kind in enumerate(ElectionKind, start=1):
        assert (
            f'kafka_controller_controllerstats_leaderelections_total{{kind="{kind.value}"}} {number}.0'
            in text
        )


async def test_two_nodes_in_one_process_have_metrics_of_their_own() -> None:
    first, second = World(), World()
    second.start_time_ms = 5
    texts = [await NodeMetrics(world).exposition() for world in (first, second)]
    assert texts[0] != texts[1]


async def test_what_quotas_have_come_to(client: Client, world: World) -> None:
    world.broker = BrokerSnapshot(
        broker_id=1,
        counters=world.counters,
        state=3,
        partition_count=0,
        image=EMPTY,
        led=LedPartitions(1),
        quotas=QuotasSnapshot({"produce": Throttled(3, 1500)}, {"produce": 2}, 4, 5),
    )
    families = text_string_to_metric_families(await (await client.get("/metrics")).text())
    shown = {
        (sample.name, sample.labels["quota"]): sample.value
        for family in families
        for sample in family.samples
        if "quota" in sample.labels
    }
    assert shown == {
        ("kafka_server_quota_throttledrequests_total", "produce"): 3,
        ("kafka_server_quota_throttletimems_total", "produce"): 1500,
        ("kafka_server_quota_clients", "produce"): 2,
        ("kafka_server_socketserver_throttledconnections_total", "ip"): 4,
        ("kafka_server_socketserver_throttledconnections_total", "listener"): 5,
    }
