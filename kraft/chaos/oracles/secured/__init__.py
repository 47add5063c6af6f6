"""Judges of secured clusters: who may what, and who takes how much."""
