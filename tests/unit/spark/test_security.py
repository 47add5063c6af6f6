"""Encryption: Kafka's options, and no secret anywhere."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kraft.spark.errors import OptionError
from kraft.spark.options import parse_options
from kraft.spark.security import Security, parse_security

PEM = Path(__file__).parent.parent / "network" / "localhost.pem"
SSL = {"kafka.security.protocol": "ssl"}
TRUST = "kafka.ssl.truststore."
KEY = "kafka.ssl.keystore."


def test_files_and_texts_say_the_same() -> None:
    by_file = parse_security(
        {**SSL, f"{TRUST}location": str(PEM), f"{KEY}location": str(PEM), f"{TRUST}type": "PEM"}
    )
    by_text = parse_security(
        {
            **SSL,
            f"{TRUST}certificates": PEM.read_text(),
            f"{KEY}key": PEM.read_text(),
            f"{KEY}certificate.chain": PEM.read_text(),
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
    )
    for security, checked in ((by_file, True), (by_text, False)):
        context = pickle.loads(pickle.dumps(security)).context()
        assert context.check_hostname is checked
        assert context.cert_store_stats()["x509"] == 1
    assert by_file.producer_properties()["ssl.ca.location"] == str(PEM)
    assert by_text.producer_properties()["ssl.endpoint.identification.algorithm"] == "none"
    assert Security().context() is None
    assert Security().producer_properties() == {}


def test_secrets_are_in_no_text() -> None:
    security = parse_security(
        {**SSL, f"{KEY}key": "hunter2", f"{KEY}certificate.chain": "x", "kafka.ssl.key.password": "hunter3"}
    )
    with pytest.raises(OptionError, match="cannot be used") as refused:
        security.context()
    options = parse_options(
        {
            "kafka.bootstrap.servers": "h:1",
            "subscribe": "t",
            **SSL,
            f"{KEY}key": "hunter2",
            f"{KEY}certificate.chain": "x",
            "kafka.ssl.key.password": "hunter3",
        }
    )
    for text in (repr(security), repr(options), str(refused.value), repr(refused.value.__cause__)):
        assert "hunter" not in text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.security.protocol": "SASL_SSL"}, "can be PLAINTEXT or SSL"),
        ({"kafka.sasl.jaas.config": "hunter2"}, "SASL is not supported"),
        ({**SSL, f"{TRUST}type": "JKS"}, "truststore.location: only PEM is read"),
        ({**SSL, f"{KEY}location": "/x/client.JKS"}, "keystore.location: only PEM is read"),
        ({**SSL, f"{KEY}password": "hunter2"}, "keystore.password is not supported: only PEM is read"),
        ({**SSL, "kafka.ssl.cipher.suites": "hunter2"}, "cipher.suites is not supported: those are"),
        ({**SSL, f"{KEY}key": "hunter2"}, "belong together"),
        ({**SSL, f"{TRUST}location": "a", f"{TRUST}certificates": "hunter2"}, "say the same"),
        ({**SSL, "kafka.ssl.endpoint.identification.algorithm": "x"}, "https, or empty"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence) as refused:
        parse_security(options)
    assert "hunter" not in str(refused.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(OptionError, match="FileNotFoundError, No such file"):
        parse_security({**SSL, f"{TRUST}location": "/nowhere.pem"}).context()
