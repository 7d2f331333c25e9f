"""Model folders that want to do harm, to cost too much, or that are damaged."""
