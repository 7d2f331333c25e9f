"""A served model under load and under attack: what `bench/serve.py` and `bench/bars.py` are made of."""
