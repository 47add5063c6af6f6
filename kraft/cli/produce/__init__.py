"""`kraft produce`: lines.py reads and splits, sending.py counts, transactions.py begins and commits, stalls.py tells when
brokers refuse for long."""
