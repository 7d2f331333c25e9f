"""The same calls with an earlier commit and with this code."""
