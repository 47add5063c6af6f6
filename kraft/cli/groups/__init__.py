"""`kraft groups`: group_client.py asks coordinators, log_positions.py leaders, reset.py says what a reset changes."""
