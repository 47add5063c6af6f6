"""`kraft produce`: lines.py reads and splits, sending.py counts, transactions.py begins and ends them, stalls.py tells when
brokers refuse for long."""
