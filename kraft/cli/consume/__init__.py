"""`kraft consume`: positions.py says what is read from where, membership.py how a group is joined, rendering.py how a
record looks; command.py copies."""
