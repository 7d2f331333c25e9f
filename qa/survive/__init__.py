"""The bars of reliability: each a command that prints one JSON line and runs again from its seed."""
