"""A scheduled job that survives being late, killed and delivered twice. Read `run.py` first."""

import gc

gc.set_threshold(10_000)
"""Young objects before a collection. Imports and pages make many times Python's default, and hold no cycles."""
