"""Bulk work on Ray Data: many machines, one model a worker process (docs/scaling.md)."""

from regard.ray.datasets import map as map
