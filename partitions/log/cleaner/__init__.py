"""Log compaction: a compacted log keeps at least the last value of each key.

`schedule` finds the log that has most to gain, `cleaner` takes it through a round in bounded jobs,
`swap` puts cleaned segments in the place of old ones so that a crash at any step leaves one or the
other. What is kept and what goes is decided in `filter` and `transactions`, which are pure.
"""
