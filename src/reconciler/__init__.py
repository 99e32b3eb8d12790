"""A scheduled job that survives being late, killed and delivered twice. Read `run.py` first."""

import gc

gc.set_threshold(10_000)
"""Young objects before a collection. Imports, clients and pages of rows are many times 700, and hold no cycles."""
