"""The `kraft` command.

A command is where its name says: `kraft configs` is configs.py, `kraft produce` is produce/command.py, `kraft topics
describe` is topics/describe.py. A room of several commands lists them in its commands.py. What all commands share is in
shared/. Nothing heavy is imported before a command runs: `--help` answers at once.
"""
