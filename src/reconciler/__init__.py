"""A scheduled job that survives being late, killed and delivered twice. Read `run.py` first."""
