"""The main job: a three-node cluster, a stream, a killed leader, `kraft ingest` into Parquet, an audit by identity.

`kraft demo` runs it, and so does `scripts/demo`. However it ends, Ctrl-C included, it ends the cluster's processes and
removes their data; the Parquet and the picture of it stay.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import Event as ThreadEvent
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kraft.cli.demo import picture, report
from kraft.cli.demo.audit import Audit, audit
from kraft.cli.demo.leaders import LeaderWatch
from kraft.cli.demo.sources import FileLines, HostSamples
from kraft.cli.demo.stream import Ledger, PacedStream
from kraft.cli.ingest.run import failures_told, require_ingest
from kraft.cli.shared.command_config import read_command_config
from kraft.cli.shared.interrupts import ends_like_ctrl_c, uninterrupted
from kraft.cli.shared.options import Json
from kraft.cli.shared.output import console, print_json, progress
from kraft.local_cluster.identities import CLIENT_FILE
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
CORES = 2


class Kill(NamedTuple):
    """The broker that was killed, and when, in ms since 1970."""

    broker: int
    time_ms: int


def demo(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files of lines; none: samples of this host.")
    ] = None,
    output: Annotated[Path, typer.Option(help="The folder that gets Parquet and picture.")] = Path(
        "demo-output"
    ),
    secure: Annotated[
        bool,
        typer.Option("--secure", help="On a cluster with TLS, users and ACLs; every client is its admin."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the main job and audit it. Exit 0 only if nothing acknowledged was lost and nothing doubled."""
    require_ingest()
    try:
        source = FileLines(files) if files else HostSamples(STREAM_S)
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}") from error
    if source.total == 0:
        raise UserError("the files hold no lines")
    parquet = output.absolute() / datetime.now().strftime("%Y%m%d-%H%M%S") / "parquet"
    with ends_like_ctrl_c(), local_cluster(secure=secure) as cluster:
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

    client = cluster.client_settings()
    create_topic(client)
    ledger = Ledger(PARTITIONS)
    watch = LeaderWatch(client, TOPIC, PARTITIONS)
    try:
        killed = stream(cluster, source, ledger, watch)
    finally:
        watch.close()
    with progress("starting Spark", total=None):
        spark = local_session("kraft-demo", cores=CORES, **{"spark.sql.shuffle.partitions": f"{CORES}"})
    try:
        ingest_topic(cluster, parquet, spark)
        with progress("auditing", total=None):
            result = audit(ledger, parquet, killed.broker, watch.leaderless_ms)
            summary = report.summarise(spark, parquet, ledger)
        if picture.can_draw():
            with progress("drawing", total=None):
                result = replace(
                    result, picture=str(draw(spark, source, killed, parquet.with_name("picture.png")))
                )
    finally:
        spark.stop()
    return result, summary


def ingest_topic(cluster: LocalCluster, parquet: Path, spark: Any) -> None:
    """As `kraft ingest demo --format parquet --to DIR`, with the session that there is. Raises UserError."""
    from kraft.cli.ingest.display import Display
    from kraft.ingest.model import TableProperties
    from kraft.ingest.options import IngestOptions
    from kraft.ingest.run import Ports, ingest
    from kraft.ingest.spark_job import SparkJobs

    options = IngestOptions(
        topics=(TOPIC,),
        folder=parquet,
        bootstrap=cluster.spec().bootstrap_servers(),
        properties=TableProperties("parquet", "bytes", None),
        client_options={}
        if cluster.spec().identities is None
        else read_command_config(cluster.directory / CLIENT_FILE).options,
    )
    with failures_told(), Display() as display:
        jobs = SparkJobs(session=spark)
        ingest(options, Ports(jobs=jobs, watcher=display, stop=ThreadEvent(), compact=lambda _table: None))


def draw(spark: Any, source: FileLines | HostSamples, killed: Kill, path: Path) -> Path:
    """The picture of the view `ingested`, as a PNG."""
    picture.show_samples(spark, are_there=isinstance(source, HostSamples))
    what = "this host" if isinstance(source, HostSamples) else f"{source.total:,} lines of files"
    event = picture.Event(f"broker {killed.broker} killed", killed.time_ms)
    title = f"kraft demo: {what}, streamed through {NODES} brokers, one of them killed"
    picture.draw(picture.query(spark), title, path, event)
    return path


def stream(
    cluster: LocalCluster, source: FileLines | HostSamples, ledger: Ledger, watch: LeaderWatch
) -> Kill:
    """Streams everything, killing the busiest leader on the way."""
    total = source.total
    started = time.monotonic()
    killed: list[Kill] = []

    def kill_when_due(sent: int, advance: Callable[[float], None]) -> None:
        advance(1)
        done = sent / total if total else (time.monotonic() - started) / STREAM_S
        if not killed and done >= KILL_AT:
            led = watch.leaders()
            broker = watch.busiest()
            cluster.kill(broker)
            watch.killed(broker, led, time.monotonic())
            ledger.killed = True
            killed.append(Kill(broker, round(time.time() * 1000)))
            partitions = sum(1 for leader in led.values() if leader == broker)
            console.print(f"killed -9 broker {broker}, which led {partitions} of {PARTITIONS} partitions")

    with progress("streaming", total=total) as advance:
        producer = PacedStream(cluster.client_settings(), TOPIC, ledger)
        rate = total / STREAM_S if total else None
        producer.run(source.items(), rate, lambda sent: kill_when_due(sent, advance))
    if ledger.first_error:
        console.print(f"[yellow]the client reported: {ledger.first_error}[/yellow]")
    return killed[0]


def create_topic(client: Mapping[str, str]) -> None:
    """Creates the topic through the unmodified client."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = NewTopic(
        TOPIC, PARTITIONS, REPLICATION_FACTOR, config={"min.insync.replicas": str(MIN_INSYNC_REPLICAS)}
    )
    admin: Any = AdminClient({**client, "log_level": 0}, logger=None)
    try:
        admin.create_topics([topic], operation_timeout=ADMIN_TIMEOUT_S)[TOPIC].result(ADMIN_TIMEOUT_S)
    except KafkaException as error:
        raise UserError(f"the topic could not be created: {error.args[0].str()}") from error


@contextlib.contextmanager
def local_cluster(*, secure: bool) -> Iterator[LocalCluster]:
    """A running three-node cluster in a temporary folder, gone at the end."""
    from kraft.local_cluster.cluster import LocalCluster
    from kraft.runtime.free_ports import free_port_range

    with tempfile.TemporaryDirectory(prefix="kraft-demo-") as folder:
        cluster = LocalCluster(Path(folder) / "cluster")
        try:
            with progress(f"starting {NODES} nodes", total=NODES) as advance:
                spec = cluster.create(NODES, free_port_range(NODES), {}, secure=secure)
                cluster.start_all(on_ready=lambda _: advance(1))
            console.print(f"[dim]to look at, while this runs: {spec.console(1)}[/dim]", soft_wrap=True)
            yield cluster
        finally:
            with uninterrupted():
                cluster.destroy()
