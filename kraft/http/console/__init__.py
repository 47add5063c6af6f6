"""The server side of the web console: the paths of docs/console-api.md, its stream of events, its files."""
