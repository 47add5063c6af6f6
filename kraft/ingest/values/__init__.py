"""What becomes of records' values in a table: bytes, text, or the fields of JSON documents; pure, for the workers."""
