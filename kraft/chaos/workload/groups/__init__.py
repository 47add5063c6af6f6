"""Members of consumer groups, of both protocols, and the topics of theirs that come, grow and go."""
