"""Found by Spark by its name: every top-level module `pyspark_*` with a `DefaultSource` registers it."""

from kraft.spark.source import KraftDataSource as DefaultSource

__all__ = ["DefaultSource"]
