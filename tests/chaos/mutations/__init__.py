"""Mutation testing of the judges: rules of the product, broken one at a time, each with the judge that must notice."""
