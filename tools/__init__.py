"""Tools to run, watch and disturb the job on a developer's machine; never packaged with the functions."""
