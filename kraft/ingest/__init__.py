"""Topics into tables, exactly once: `kraft ingest`.

Spark schedules, Python workers write, this process commits. `run.py` is the loop; `model.py` holds what its parts hand
to each other. The room sees the connector (`kraft.spark`) and nothing of the server.
"""
