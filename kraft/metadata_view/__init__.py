"""Metadata as people look at them: records and images as documents, and as a tree of folders. Pure."""
