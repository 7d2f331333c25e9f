"""A served model under load and under attack: what trials and `bench/serve.py` are made of."""
