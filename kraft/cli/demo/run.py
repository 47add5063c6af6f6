"""The main job: a three-node cluster, a stream, a killed leader, Spark into Parquet, an audit by identity.

`kraft demo` runs it, and so does `scripts/demo`. However it ends, Ctrl-C included, it ends the cluster's processes and
removes their data; the Parquet stays.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.cli.demo import report
from kraft.cli.demo.audit import Audit, audit
from kraft.cli.demo.leaders import LeaderWatch
from kraft.cli.demo.sources import FileLines, HostSamples
from kraft.cli.demo.stream import Ledger, PacedStream
from kraft.cli.shared.interrupts import ends_like_ctrl_c, uninterrupted
from kraft.cli.shared.options import Json
from kraft.cli.shared.output import console, print_json, progress
from kraft.user_error import EXIT_FAILED, UserError

if TYPE_CHECKING:
    from kraft.local_cluster.cluster import LocalCluster

NODES = 3
PARTITIONS = 6
REPLICATION_FACTOR = 3
MIN_INSYNC_REPLICAS = 2
TOPIC = "demo"
STREAM_S = 8.0
KILL_AT = 0.4
ADMIN_TIMEOUT_S = 15.0


def demo(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files of lines; none: samples of this host.")
    ] = None,
    output: Annotated[Path, typer.Option(help="The folder that gets the Parquet.")] = Path("demo-output"),
    as_json: Json = False,
) -> None:
    """Run the main job and audit it. Exit 0 only if nothing acknowledged was lost and nothing doubled."""
    require_spark()
    try:
        source = FileLines(files) if files else HostSamples(STREAM_S)
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}") from error
    if source.total == 0:
        raise UserError("the files hold no lines")
    parquet = output.absolute() / datetime.now().strftime("%Y%m%d-%H%M%S") / "parquet"
    with ends_like_ctrl_c(), local_cluster() as cluster:
        result, summary = run(cluster, source, parquet)
    report.print_audit(result, summary, to_stderr=as_json)
    if as_json:
        print_json(result.document())
    if failures := result.failures():
        raise UserError("; ".join(failures), EXIT_FAILED)


def run(
    cluster: LocalCluster, source: FileLines | HostSamples, parquet: Path
) -> tuple[Audit, report.Summary]:
    """The job on a running cluster. Returns the audit and a summary of the Parquet read back."""
    from kraft.spark.session import local_session

    bootstrap = cluster.spec().bootstrap_servers()
    create_topic(bootstrap)
    ledger = Ledger(PARTITIONS)
    watch = LeaderWatch(bootstrap, TOPIC, PARTITIONS)
    try:
        killed = stream(cluster, source, ledger, watch)
    finally:
        watch.close()
    with progress("starting Spark", total=None):
        spark = local_session("kraft-demo")
    try:
        with progress("ingesting with Spark", total=None):
            frame = spark.read.format("kraft").option("kafka.bootstrap.servers", bootstrap)
            frame.option("subscribe", TOPIC).load().write.parquet(str(parquet))
        with progress("auditing", total=None):
            result = audit(ledger, parquet, killed, watch.leaderless_ms)
            summary = report.summarise(spark, parquet, ledger)
    finally:
        spark.stop()
    return result, summary


def stream(cluster: LocalCluster, source: FileLines | HostSamples, ledger: Ledger, watch: LeaderWatch) -> int:
    """Streams everything, killing the busiest leader on the way. Returns the killed broker's id."""
    total = source.total
    started = time.monotonic()
    killed: list[int] = []

    def kill_when_due(sent: int, advance: Callable[[float], None]) -> None:
        advance(1)
        done = sent / total if total else (time.monotonic() - started) / STREAM_S
        if not killed and done >= KILL_AT:
            led = watch.leaders()
            broker = watch.busiest()
            cluster.kill(broker)
            watch.killed(broker, led, time.monotonic())
            ledger.killed = True
            killed.append(broker)
            partitions = sum(1 for leader in led.values() if leader == broker)
            console.print(f"killed -9 broker {broker}, which led {partitions} of {PARTITIONS} partitions")

    with progress("streaming", total=total) as advance:
        producer = PacedStream(cluster.spec().bootstrap_servers(), TOPIC, ledger)
        rate = total / STREAM_S if total else None
        producer.run(source.items(), rate, lambda sent: kill_when_due(sent, advance))
    if ledger.first_error:
        console.print(f"[yellow]the client reported: {ledger.first_error}[/yellow]")
    return killed[0]


def create_topic(bootstrap: str) -> None:
    """Creates the topic through the unmodified client."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = NewTopic(
        TOPIC, PARTITIONS, REPLICATION_FACTOR, config={"min.insync.replicas": str(MIN_INSYNC_REPLICAS)}
    )
    admin: Any = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}, logger=None)
    try:
        admin.create_topics([topic], operation_timeout=ADMIN_TIMEOUT_S)[TOPIC].result(ADMIN_TIMEOUT_S)
    except KafkaException as error:
        raise UserError(f"the topic could not be created: {error.args[0].str()}") from error


@contextlib.contextmanager
def local_cluster() -> Iterator[LocalCluster]:
    """A running three-node cluster in a temporary folder, gone at the end."""
    from kraft.local_cluster.cluster import LocalCluster
    from kraft.runtime.free_ports import free_port_range

    with tempfile.TemporaryDirectory(prefix="kraft-demo-") as folder:
        cluster = LocalCluster(Path(folder) / "cluster")
        try:
            with progress(f"starting {NODES} nodes", total=NODES) as advance:
                cluster.create(NODES, free_port_range(NODES), {})
                cluster.start_all(on_ready=lambda _: advance(1))
            yield cluster
        finally:
            with uninterrupted():
                cluster.destroy()


def require_spark() -> None:
    """Raises UserError unless the Spark extra is installed."""
    from importlib.util import find_spec

    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise UserError("the demo ingests with Spark; install it with: pip install 'kraft[spark]'")
