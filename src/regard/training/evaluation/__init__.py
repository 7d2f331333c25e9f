"""How good a model is on held-out text, task by task; the trainer knows only `validate` and `final`.

`choose` knows all of them; who needs one measure takes it from its file and does not wait for the others.
"""
