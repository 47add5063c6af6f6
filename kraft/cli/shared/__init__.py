"""What all commands share: options, output, how they end, and a client of the brokers."""
