"""Programs that the tests of consumer groups start: one member of a group each, of one client library."""
