"""Topics into tables: data and offsets in one commit, audited. It sees `kraft.spark` and nothing of the server."""
