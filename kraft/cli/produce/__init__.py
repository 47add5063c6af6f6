"""`kraft produce`: lines.py reads and splits, sending.py counts, stalls.py tells when brokers refuse for long."""
