"""The controller quorum alone under simulation: real Raft drivers and controllers, without brokers or HTTP.

A kind of cluster of `kraft.chaos.campaign`, in the same world and struck by the same faults by name as whole ones:
`settings` draws the scenario of a seed, `run` plays it, the command is `kraft chaos quorum`. A seed takes a fraction of
a second, so that thousands can be played. Whole clusters are played by `kraft.chaos.run`. What passes a link here is a
message, not a segment of TCP (`sessions`): only so can single messages be lost, doubled and overtaken, without which
some of Raft's guards are never asked.
"""
