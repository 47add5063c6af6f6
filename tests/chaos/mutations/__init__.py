"""Mutation testing of the judges: rules of the product, broken one at a time, and who must notice."""
