"""`kraft produce`: lines.py reads and splits, sending.py counts, transactions.py groups lines, stalls.py tells when
brokers refuse for long."""
