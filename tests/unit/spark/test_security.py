"""Encryption and authentication: Kafka's options, and no secret anywhere."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

from kraft.security.mechanisms import Credentials
from kraft.security.token_login import MODULE, TokenLogin
from kraft.spark.errors import AuthenticationError, OptionError
from kraft.spark.options import parse_options
from kraft.spark.security import Security, parse_security
from tests.support.tokens import Issuer

PEM = Path(__file__).parent.parent / "network" / "localhost.pem"
SSL = {"kafka.security.protocol": "ssl"}
TRUST = "kafka.ssl.truststore."
KEY = "kafka.ssl.keystore."
MECHANISM, JAAS = "kafka.sasl.mechanism", "kafka.sasl.jaas.config"
SASL = {"kafka.security.protocol": "sasl_plaintext", MECHANISM: "scram-sha-512"}
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
TOKENS = {
    **SASL,
    MECHANISM: "OAUTHBEARER",
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
    JAAS: f'{MODULE} required clientId="app" clientSecret="hunter2";',
}
LOGIN = f"""{SCRAM_MODULE} required username="alice" password='hunter"2';"""


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
    assert Security().producer_properties() == {"security.protocol": "PLAINTEXT"}


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
        ({"kafka.security.protocol": "hunter2"}, "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"kafka.sasl.jaas.config": "hunter2"}, "set kafka.security.protocol to SASL_SSL"),
        ({"kafka.security.protocol": "SASL_SSL"}, "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({**SASL, MECHANISM: "GSSAPI"}, "GSSAPI, is not supported"),
        (SASL, r"no login module \(the name of a login module comes first\): write org.apache"),
        ({**SASL, JAAS: "hunter2"}, "the word required follows"),
        ({**SASL, JAAS: f'{PLAIN_MODULE} required password="hunter2";'}, "must name .*ScramLoginModule for"),
        ({**SASL, JAAS: f'{SCRAM_MODULE} required password="hunter2";'}, "has no username"),
        ({**SASL, JAAS: f'{SCRAM_MODULE} required username="hunter";'}, "has no password"),
        ({**SASL, JAAS: f'{SCRAM_MODULE} required tokenauth="true";'}, "delegation tokens"),
        ({**SASL, JAAS: "org.x.Krb5LoginModule required hunter=x;"}, "must name"),
        (
            {"kafka.sasl.oauthbearer.token.endpoint.url": "hunter2"},
            "url is given: set kafka.security.protocol to SASL_SSL",
        ),
        (
            {**TOKENS, "kafka.sasl.oauthbearer.token.endpoint.url": ""},
            "kafka.sasl.oauthbearer.token.endpoint.url is not",
        ),
        (
            {**TOKENS, JAAS: LOGIN},
            "kafka.sasl.jaas.config must name .*OAuthBearerLoginModule for OAUTHBEARER",
        ),
        (
            {**TOKENS, JAAS: "hunter2"},
            "no login module .*: write .*OAuthBearerLoginModule required clientId=",
        ),
        (
            {**TOKENS, "kafka.sasl.oauthbearer.assertion.file": "hunter2"},
            "kafka.sasl.oauthbearer.assertion.file is not",
        ),
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


def test_credentials_for_both_clients() -> None:
    scram = parse_security({**SASL, JAAS: LOGIN})
    assert pickle.loads(pickle.dumps(scram)).credentials == Credentials("SCRAM-SHA-512", "alice", 'hunter"2')
    assert scram.context() is None
    assert scram.producer_properties() == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": 'hunter"2',
    }
    plain = parse_security(
        {
            "kafka.security.protocol": "SASL_SSL",
            MECHANISM: "PLAIN",
            JAAS: f"kafkashaded.{PLAIN_MODULE} required username=bob password=hunter2 ;",
            f"{TRUST}location": str(PEM),
        }
    )
    assert plain.context() is not None
    assert (
        plain.producer_properties().items()
        >= {
            "security.protocol": "SASL_SSL",
            "sasl.password": "hunter2",
            "ssl.ca.location": str(PEM),
        }.items()
    )
    assert parse_security({"kafka.security.protocol": "PLAINTEXT", JAAS: LOGIN}) == Security()
    for text in (repr(scram), repr(plain)):
        assert "hunter" not in text


def test_a_login_that_gives_tokens(tmp_path: Path) -> None:
    """librdkafka asks for them by a callback; where there is none that is told before it waits for one."""
    security = pickle.loads(pickle.dumps(parse_security(TOKENS)))
    assert security.credentials == TokenLogin("https://issuer/token", "app", "hunter2")
    assert "hunter" not in repr(security)
    file = tmp_path / "token"
    by_file = parse_security(
        {
            **TOKENS,
            "kafka.sasl.oauthbearer.token.endpoint.url": file.as_uri(),
            JAAS: f"{MODULE} required extension_a=b;",
        }
    )
    with pytest.raises(
        AuthenticationError, match=r"no token for kafka.sasl.mechanism OAUTHBEARER: file:.*No such file"
    ):
        by_file.producer_properties()
    issuer, now_s = Issuer(), int(time.time())
    file.write_text(issuer.token(now_s))
    properties = by_file.producer_properties()
    assert properties.keys() == {"security.protocol", "sasl.mechanism", "oauth_cb"}
    assert properties["oauth_cb"]("") == (file.read_text(), now_s + 3600, "alice", {"a": "b"})


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(OptionError, match="FileNotFoundError, No such file"):
        parse_security({**SSL, f"{TRUST}location": "/nowhere.pem"}).context()
