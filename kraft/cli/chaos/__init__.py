"""`kraft chaos`: the command line of kraft.chaos."""
