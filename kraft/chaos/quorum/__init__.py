"""The controller quorum alone under simulation: real Raft drivers and controllers, without brokers or HTTP.

A kind of cluster of `kraft.chaos.campaign`: `settings` draws the scenario of a seed, `run` plays it, the command is
`kraft chaos quorum`. A seed takes a fraction of a second, so that thousands can be played. Whole clusters are played by
`kraft.chaos.run`. Messages, not packets, are what is lost, doubled and overtaken here (`links`): that reaches Raft's
rules in a hundredth of the time.
"""
