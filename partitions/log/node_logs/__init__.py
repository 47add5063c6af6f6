"""All logs of a node: data directories and their files, the start, and what is done to many logs by and by."""
