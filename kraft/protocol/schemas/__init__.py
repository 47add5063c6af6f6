"""Declared messages, one module for each family of APIs; imported when an API is first used."""
