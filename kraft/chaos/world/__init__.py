"""Faults on purpose: a simulated world in which unmodified nodes run, decided by one seed.

`simulation.py` is the way in. Below it: `scheduler.py` (virtual time), `loop.py` with `transport.py`,
`server.py`, `sockets.py`, `tasks.py` (asyncio on it), `network.py` with `kernel.py` (TCP between hosts),
`disk.py` with `storage.py`, `inodes.py` and `paths.py` (what survives what), `executor.py` and `raft_lane.py`
(what runs beside the loop), `host.py` and `incarnation.py` (lives and deaths), `determinism.py` (patches and
guards), `trace.py` (the hash), `environment.py` (a node's ports).
"""
