"""PySpark and a secured cluster: TLS with SCRAM, and TLS with tokens of an issuer, in drivers and Python workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kraft.security.token_login import MODULE
from kraft.spark.session import local_session
from tests.support.secured_cluster import PASSWORD, USER, USER_SECRET, SecuredCluster

pytestmark = [
    pytest.mark.timeout(300),  # a JVM and a cluster start in here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # pyspark's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
QUICK_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
ROWS = 100


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = local_session("secured", **QUICK_START, **{"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


def options(cluster: SecuredCluster, mechanism: str, secret: str) -> dict[str, str]:
    """Of a reader or a writer that is alice."""
    quoted = secret.replace('"', '\\"')
    login = {
        "SCRAM-SHA-512": f'{SCRAM_MODULE} required username="{USER}" password="{quoted}";',
        "OAUTHBEARER": f'{MODULE} required clientId="{USER}" clientSecret="{quoted}"'
        f' ssl.truststore.location="{cluster.trusted}";',
    }[mechanism]
    given = {
        "bootstrap.servers": cluster.servers("SASLTLS"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(cluster.trusted),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": login,
    }
    if mechanism == "OAUTHBEARER":
        given["sasl.oauthbearer.token.endpoint.url"] = cluster.endpoint.url
    return {f"kafka.{name}": value for name, value in given.items()}


@pytest.mark.parametrize(("mechanism", "secret"), [("SCRAM-SHA-512", PASSWORD), ("OAUTHBEARER", USER_SECRET)])
def test_a_topic_is_written_and_read(
    secured: SecuredCluster, spark: SparkSession, mechanism: str, secret: str
) -> None:
    topic = secured.create_topic("spark", partitions=2)
    given = options(secured, mechanism, secret)
    numbers = spark.range(ROWS).selectExpr("cast(id as string) value")
    numbers.write.format("kraft").options(**given, topic=topic).mode("append").save()
    rows = spark.read.format("kraft").options(**given, subscribe=topic).load().collect()
    assert sorted(int(row.value) for row in rows) == list(range(ROWS))


@pytest.mark.parametrize(
    ("mechanism", "sentence"),
    [
        ("SCRAM-SHA-512", r"by SCRAM-SHA-512: SASL_AUTHENTICATION_FAILED\. .*Check name and password in kafka\.sasl"),
        ("OAUTHBEARER", r"There is no token for kafka\.sasl\.mechanism OAUTHBEARER: https://.* answers 401"),
    ],
)  # fmt: skip
def test_a_wrong_secret_ends_the_job_with_a_sentence(
    secured: SecuredCluster, spark: SparkSession, mechanism: str, sentence: str
) -> None:
    topic = secured.create_topic("spark-refused")
    given = options(secured, mechanism, "of hunter")
    with pytest.raises(PySparkException, match=sentence) as refused:
        spark.read.format("kraft").options(**given, subscribe=topic).load().count()
    assert "hunter" not in str(refused.value)
