"""What the console shows of records: a page of them, a live tail, a search, a download (docs/console-api.md)."""
