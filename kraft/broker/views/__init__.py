"""What a broker tells of itself to whoever shows the cluster: its own pages, and those of the other brokers."""
