"""`kraft groups`: group_client.py asks coordinators, log_positions.py leaders; reset.py decides what a reset changes."""
