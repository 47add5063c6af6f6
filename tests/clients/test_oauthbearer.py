"""Unmodified clients with tokens: librdkafka, kafka-python, aiokafka; tokens that expire in mid-stream, bad ones."""

from __future__ import annotations

import asyncio
import time
import warnings
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from tests.support.kept_connection import KeptConnection
from tests.support.node_processes import until
from tests.support.secured_cluster import USER, SecuredCluster, round_trip

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its own resources
    import kafka
    import kafka.errors
    from kafka.net.sasl.oauth import AbstractTokenProvider

WAIT_S = 30.0
LIFETIME_S = 6.0
"""Of tokens that expire while a client works: librdkafka has the last tenth of it to authenticate again."""
RENEWALS = 2


def librdkafka(cluster: SecuredCluster, made: list[str], lifetime_s: float = 3600) -> dict[str, Any]:
    """`made`: takes the tokens that the client asks for."""

    def token(_: str) -> tuple[str, float]:
        now_s = time.time()
        made.append(cluster.issuer.token(now_s, USER, lifetime_s))
        return made[-1], now_s + lifetime_s

    return {
        "bootstrap.servers": cluster.servers("SASLTLS"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.trusted),
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": token,
        "log_level": 0,
    }


def test_librdkafka_writes_and_reads(secured: SecuredCluster) -> None:
    round_trip(librdkafka(secured, []), secured.create_topic("token-rd"))


def test_tokens_that_expire_are_renewed_in_mid_stream(secured: SecuredCluster) -> None:
    """A connection outlives some tokens, and every record is acknowledged."""
    topic = secured.create_topic("token-short", replication_factor=1)
    kept = KeptConnection(secured.leader(topic))
    outcomes: list[KafkaError | None] = []
    producer = Producer(librdkafka(secured, [], LIFETIME_S) | kept.properties())

    def sent() -> bool:
        producer.produce(topic, b"value", on_delivery=lambda error, _: outcomes.append(error))
        producer.poll(0.05)
        return kept.messages() > RENEWALS

    until(sent, "a connection outlives its tokens", WAIT_S * 2)
    assert producer.flush(WAIT_S) == 0
    assert set(outcomes) == {None}


def test_librdkafka_with_a_token_for_somebody_else(secured: SecuredCluster) -> None:
    """It is told why."""

    def token(_: str) -> tuple[str, float]:
        now_s = time.time()
        return secured.issuer.sign(secured.issuer.claims(now_s) | {"aud": "console"}), now_s + 3600

    errors: list[KafkaError] = []
    producer = Producer(librdkafka(secured, []) | {"oauth_cb": token, "error_cb": errors.append})

    def told() -> str | None:
        producer.poll(0.1)
        return next((str(error) for error in errors if "audience" in str(error)), None)

    reason = until(told, "the client is refused")
    assert "_AUTHENTICATION" in reason
    assert "the token is for another audience" in reason


class Tokens(AbstractTokenProvider):
    """For kafka-python."""

    def __init__(self, cluster: SecuredCluster, **claims: Any) -> None:
        super().__init__()
        self._cluster, self._claims = cluster, claims

    def token(self) -> str:
        issuer = self._cluster.issuer
        return issuer.sign(issuer.claims(time.time(), USER) | self._claims)


def test_kafka_python(secured: SecuredCluster) -> None:
    topic = secured.create_topic("token-kp")
    given: dict[str, Any] = {
        "bootstrap_servers": secured.servers("SASLTLS").split(","),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(secured.trusted),
        "sasl_mechanism": "OAUTHBEARER",
    }
    good = given | {"sasl_oauth_token_provider": Tokens(secured)}
    producer = kafka.KafkaProducer(**good)
    producer.send(topic, b"value").get(WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, **good, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    assert next(consumer).value == b"value"
    consumer.close()
    bad = given | {"sasl_oauth_token_provider": Tokens(secured, iss="https://evil.example")}
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(**bad, bootstrap_timeout_ms=3000)


async def test_aiokafka(secured: SecuredCluster) -> None:
    import ssl

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider as AioTokens
    from aiokafka.errors import KafkaError as AioKafkaError

    class Provider(AioTokens):  # type: ignore[misc]
        def __init__(self, **claims: Any) -> None:
            self._claims = claims

        async def token(self) -> str:
            return secured.issuer.sign(secured.issuer.claims(time.time(), USER) | self._claims)

    topic = await asyncio.to_thread(secured.create_topic, "token-aio")
    given: dict[str, Any] = {
        "bootstrap_servers": secured.servers("SASLTLS"),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(secured.trusted)),
        "sasl_mechanism": "OAUTHBEARER",
    }
    async with AIOKafkaProducer(**given, sasl_oauth_token_provider=Provider()) as producer:
        await producer.send_and_wait(topic, b"value")
    reading = AIOKafkaConsumer(
        topic, **given, sasl_oauth_token_provider=Provider(), auto_offset_reset="earliest"
    )
    async with reading as consumer:
        assert (await asyncio.wait_for(consumer.getone(), WAIT_S)).value == b"value"
    refused = AIOKafkaProducer(**given, sasl_oauth_token_provider=Provider(exp=1))
    with pytest.raises(AioKafkaError):
        await refused.start()
    await refused.stop()
