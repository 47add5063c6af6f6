"""What one log knows of its idempotent and transactional producers, in memory and in files (KIP-98)."""
