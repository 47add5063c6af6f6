"""`kraft produce`: lines.py reads and splits, sending.py counts, transactions.py has them in transactions, stalls.py tells
when brokers refuse for long."""
