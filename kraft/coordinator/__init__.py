"""Coordinators: what applications agree on, kept as records of internal topics."""
