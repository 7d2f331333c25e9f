"""Release trials: `python qa --list`."""
