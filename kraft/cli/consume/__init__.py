"""`kraft consume`: positions.py says what is read from where, rendering.py how a record looks, command.py copies."""
