"""The transaction coordinator: producers by their transactional ids, their transactions, and the markers to write."""
