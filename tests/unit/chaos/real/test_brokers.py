"""Where an experiment's clients dial: the same for librdkafka, raw connections, relayed listeners of a secured one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.chaos.experiments.backends import SIM, play_on
from kraft.chaos.experiments.document import load
from kraft.chaos.real.brokers import Brokers
from kraft.chaos.real.cluster import ChaosCluster
from kraft.cli.shared.command_config import read_command_config
from kraft.config import load_config
from kraft.local_cluster.spec import node_config
from kraft.user_error import UserError
from tests.unit.chaos.experiments.planted import TEXT


def test_in_plain_text_only_the_address_is_told() -> None:
    brokers = Brokers("127.0.0.1:9092,127.0.0.1:9093")
    assert brokers.settings == {"bootstrap.servers": "127.0.0.1:9092,127.0.0.1:9093"}
    assert brokers.addresses == [("127.0.0.1", 9092), ("127.0.0.1", 9093)]
    assert brokers.tls is None


def test_a_secured_cluster_behind_relays_is_dialled_there_and_nowhere_else(tmp_path: Path) -> None:
    cluster = ChaosCluster(tmp_path, 3, {}, secure=True)
    try:
        brokers = cluster.brokers
        assert brokers.config is not None
        said = read_command_config(brokers.config)
        assert (said.servers, said.security) == (brokers.servers, brokers.security)
        assert brokers.settings["security.protocol"] == "SASL_SSL"
        assert brokers.tls is not None
        own_ports = {node.client_port for node in cluster.local.spec().nodes}
        assert own_ports.isdisjoint(port for _, port in brokers.addresses)
        for node_id in cluster.node_ids:
            config = load_config(node_config(tmp_path, node_id).read_text())
            assert config.inter_broker_listener.name == "REPLICATION"
            assert {one.protocol for one in config.broker_listeners} == {"SASL_SSL"}
            assert config.controller_protocol == "SSL"
    finally:
        cluster.close()


def test_the_simulation_has_no_tls(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--secure is for real nodes"):
        play_on(SIM, load(TEXT), 1, tmp_path, lambda _: None, secure=True)
