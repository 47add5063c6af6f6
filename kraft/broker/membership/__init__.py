"""A broker as a member of its cluster: its life with the controller, and the metadata that it follows."""
