"""Opening one log: what is on the disk, whether that is sound, and what of it a crash has left torn."""
