"""`kraft ingest`: topics into tables. `commands.py` has the words, `run.py` the process around the loop."""
