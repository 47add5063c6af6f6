"""`kraft chaos replay`: the histories by which Kafka's replication learnt its rules, played step by step.

Each history is an exact script over real logs, replicas, fetch states and controller decisions; only what
carries messages between them is the script. It is played under today's rule and under the one that it made
obsolete, and the history checker of `kraft chaos simulate` says what the clients were left with.
"""
