"""Chaos experiments: a file says what is done to a cluster and what must come of it; a verdict says what did.

`document` reads files, `targets` resolves whom a fault strikes, `evidence` is what a run brings home from either world,
`verdict` judges it: all pure. `simulated` plays an experiment in the simulator, `kraft.chaos.real` on real processes.
`library/` are the files that are shipped, `report/` makes the page that a person reads.
"""
