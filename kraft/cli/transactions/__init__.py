"""`kraft transactions`: transaction_client.py asks coordinators and leaders, hanging.py finds what none will end."""
