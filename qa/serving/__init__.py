"""A served model under load and under attack: what `bench/serve.py` and `qa/bars.py` are made of."""
