"""Faults on purpose: whole clusters of unmodified nodes in a simulated world that one seed decides, and their judges.

`run.py` is the way in: it plays a `scenario.py`, which `swarm.py` draws from a seed. `world/` is the simulated world,
`cluster.py` the nodes in it, `workload/` the clients, whose `history.py` is judged by `checker/`. `faults/` strike,
`oracles/` watch, `verdict.py` collects. `campaign.py` with `pool.py` plays many seeds, `report.py` reports on them,
`shrink.py` makes a failing one small, `case.py` keeps it.
"""
