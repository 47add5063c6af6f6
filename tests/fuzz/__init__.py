"""What strangers may send to a node's ports, by the million: `scripts/fuzz`."""
