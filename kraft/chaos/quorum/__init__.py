"""The controller quorum alone under simulation: real Raft drivers and controllers, without brokers or HTTP.

A seed takes a fraction of a second, so that thousands can be played: `run.play` plays one, `campaign` many,
`kraft chaos quorum` is the command. Whole clusters are played by `kraft.chaos.run`.
"""
