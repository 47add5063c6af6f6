"""The partition log by itself: ratios to bare system calls, and costs of lookups and of start-up.

    python -m bench.micro [--only PART …] [--json] [--check]

Everything is measured in one run on one machine: a ratio compares two loops that take turns. Work within one
process that waits for nothing is measured in CPU time, the rest by the wall clock.
"""
