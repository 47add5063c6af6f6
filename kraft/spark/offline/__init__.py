"""`option("path", DIR)`: the connector's reader over the data directories of stopped brokers, without a cluster.

`cluster.py` answers planner and slice reader as leaders would; everything else of a read is that of the online path.
Of the server it sees the modules that tell what stands in segments and checkpoints, and writes nothing. `source.py`
loads it when `path` is given, and not before.
"""
