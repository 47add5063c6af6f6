"""Our own clients of OAUTHBEARER: commands, with tokens of an endpoint and of a file, and brokers among each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft.cli.app import run
from kraft.security.token_login import MODULE
from tests.support.node_processes import NODES, until
from tests.support.secured_cluster import BROKER, BROKER_SECRET, USER, USER_SECRET, SecuredCluster, round_trip

WAIT_S = 60.0


def of_java(cluster: SecuredCluster) -> dict[str, str]:
    """The properties of Kafka's own clients, with tokens of the endpoint."""
    return {
        "bootstrap.servers": cluster.servers("SASLTLS"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(cluster.trusted),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": cluster.endpoint.url,
        "sasl.jaas.config": f'{MODULE} required clientId="{USER}" clientSecret="{USER_SECRET}"'
        f' ssl.truststore.location="{cluster.trusted}";',
    }


WRITTEN = {
    "librdkafka": lambda cluster: cluster.by_tokens(),
    "java": of_java,
    "file": lambda cluster: cluster.java("SASLTLS", "OAUTHBEARER"),
}
"""Files of --command-config that say who alice is."""


@pytest.mark.parametrize("names", WRITTEN)
def test_commands(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], names: str
) -> None:
    """Those that ask brokers themselves, and those that have librdkafka for it."""
    config, topic, lines = (
        tmp_path / "client.properties",
        secured.create_topic("token-cli"),
        tmp_path / "lines",
    )
    config.write_text("".join(f"{key}={value}\n" for key, value in WRITTEN[names](secured).items()))
    lines.write_text("one\ntwo\n")
    option = ["--command-config", str(config)]
    assert run(["topics", "describe", topic, "--json", *option]) == 0
    assert json.loads(capsys.readouterr().out)["partitions"][0]["leo"].keys() == {"1", "2", "3"}
    assert run(["produce", topic, str(lines), *option]) == 0
    capsys.readouterr()
    assert run(["consume", topic, "--from-beginning", "--exit-at-end", *option]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"


def test_a_file_of_librdkafka_means_the_same_to_librdkafka(secured: SecuredCluster) -> None:
    round_trip(secured.by_tokens() | {"log_level": 0}, secured.create_topic("token-oidc"))


@pytest.mark.parametrize("command", [["users", "list"], ["produce", "any"], ["consume", "any"]])
def test_a_command_without_a_token_says_why(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    config = tmp_path / "client.properties"
    given = secured.by_tokens(secret="of hunter")
    config.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    assert run([*command, "--command-config", str(config)]) == 1
    told = capsys.readouterr().err
    assert "answers 401 (invalid_client)" in " ".join(told.split())
    assert "hunter" not in told


def test_brokers_renew_their_tokens_while_they_replicate(secured: SecuredCluster) -> None:
    topic = secured.create_topic("token-brokers", min_insync_replicas=str(NODES))

    def renewed() -> bool:
        return [asked.client_id for asked in secured.endpoint.asked].count(BROKER) > NODES

    until(renewed, "a broker asks for another token", WAIT_S)
    round_trip(secured.librdkafka("SASLTLS", "SCRAM-SHA-512"), topic)
    for node_id in secured.node_ids:
        log = secured.log_text(node_id)
        assert "a token for other brokers cannot be had" not in log
        assert BROKER_SECRET not in log
