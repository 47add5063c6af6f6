"""A topic of a fake cluster and the table that it is ingested into, without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from kraft.ingest.audit import AuditReport, ClusterView, audit, read_table
from kraft.ingest.manifest import Manifest, encode
from kraft.ingest.model import Format, TableFile, TableProperties, Values
from kraft.ingest.options import IngestOptions
from kraft.ingest.parquet import ParquetTable
from kraft.ingest.plan import Cut
from kraft.ingest.progress import Progress
from kraft.ingest.run import Ports, ingest
from kraft.ingest.tables import open_table
from kraft.ingest.writing import write_slice
from kraft.spark.errors import ConnectorError
from kraft.spark.options import parse_options
from kraft.spark.reading import driver_client
from tests.support.fake_broker import FakeCluster, FakePartition, FakeTopic


class Silent:
    """A watcher that looks away."""

    def begun(self, progress: Progress) -> None: ...
    def planned(self, cut: Cut) -> None: ...
    def committed(self, next_commit_s: float | None) -> None: ...
    def failed(self, error: ConnectorError, retry_s: float) -> None:
        raise error

    def told(self, sentence: str) -> None: ...


class Lake:
    """A topic of a fake cluster and the table that it is ingested into."""

    def __init__(self, cluster: FakeCluster, folder: Path, table_format: Format) -> None:
        self.cluster = cluster
        self.folder = folder
        self.format = table_format
        self.topic: FakeTopic = cluster.create_topic("orders", leaders=(1, 1))

    @property
    def first(self) -> FakePartition:
        return self.topic.partitions[0]

    def produce(self, count: int, *, partition: int = 0, word: str = "value") -> None:
        at = self.topic.partitions[partition]
        for _ in range(count):
            offset = at.log_end_offset
            at.append([(86_400_000 * (1 + offset // 10), b"k%d" % offset, f"{word}-{offset}".encode(), ())])

    def ingest(
        self, values: Values = "bytes", partition_by: str | None = None, schema_text: str | None = None
    ) -> None:
        options = IngestOptions(
            topics=("orders",),
            folder=self.folder,
            bootstrap=self.cluster.bootstrap,
            properties=TableProperties(self.format, values, partition_by),
            schema_text=schema_text,
        )
        ports = Ports(
            jobs=lambda tasks: [write_slice(task) for task in tasks],
            watcher=Silent(),
            stop=Event(),
            compact=lambda table: None,
        )
        ingest(options, ports)

    def ingest_in_cuts(
        self, cuts: int = 3, values: Values = "bytes", partition_by: str | None = None
    ) -> None:
        """So many commits of ten records in the first partition and four in the second."""
        for _ in range(cuts):
            self.produce(10)
            self.produce(4, partition=1)
            self.ingest(values, partition_by)

    def audit(self, *, is_asked: bool = True, allow_holes: bool = False) -> AuditReport:
        options = parse_options(
            {
                "kafka.bootstrap.servers": self.cluster.bootstrap,
                "subscribe": "orders",
                "kafka.isolation.level": "read_committed",
                "fetchOffset.numRetries": "2",
                "fetchOffset.retryIntervalMs": "10",
            },
            streaming=True,
        )
        with driver_client(options) as client:
            return audit(read_table(self.folder), ClusterView(client, allow_holes) if is_asked else None)

    def files(self) -> list[TableFile]:
        """Ascending by partition and first offset."""

        def place(file: TableFile) -> tuple[int, int]:
            rows = pq.read_table(self.folder / file.path, columns=["partition", "offset"])
            return rows.column("partition")[0].as_py(), rows.column("offset")[0].as_py()

        return sorted(open_table(self.folder).files(), key=place)

    def add_by_hand(self, file: TableFile) -> None:
        """To the table's log, once more or for the first time."""
        if self.format == "parquet":
            table = ParquetTable(self.folder)
            path = table._path(table.version() + 1)
            path.write_bytes(encode(Manifest(table.version() + 1, (file,))))
            return
        table = DeltaTable(str(self.folder))
        action = AddAction(
            file.path, file.size_bytes, file.partition_values, 1, True, json.dumps({"numRecords": file.rows})
        )
        table.create_write_transaction([action], mode="append", schema=table.schema())
