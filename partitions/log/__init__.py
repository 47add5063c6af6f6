"""One partition's log on one broker, and all logs of a node.

Here is what one log is: `log.py`, its segments and their indexes, and what is asked of an append. `epochs/` keeps its
leader epochs, `producers/` its producers and transactions, `opening/` finds out what is on the disk when a log is
opened. `node_logs/` has the data directories of a node and what concerns many logs. `cleaner/` compacts. `inspection/`
looks at files without touching them.
"""
