"""Faults on purpose: whole clusters of unmodified nodes in a simulated world, decided by one seed, judged.

`world/` is the simulated world.
"""
