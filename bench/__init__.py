"""The benchmark of 2014 (three cheap machines, two million writes a second), on the machine at hand.

`python -m bench` runs every row next to a null broker in the same run, so that the ratios say what
the broker costs, not what the machine is; `--only 2014` takes the parameters of 2014 alone. See `bench.rows`.
"""
