"""A deterministic simulator: real workers, one network message at a time, in an order that a seed decides.

    clock.py        true time, and each worker's own idea of it
    baton.py        actors, of which only the one that holds the baton runs; each stops at every message
    network.py      the messages: sent, applied by moto, answered, lost, delayed and repeated
    faults.py       what a seed lets happen to a message, a worker or its clock
    writers.py      live writers of source and view
    operator.py     what people order meanwhile
    ledger.py       what is known of accounts, apart from what the workers say
    invariants.py   what must hold after every write
    population.py   the world of a seed
    stage.py        the deployed function on moto, and every source of chance
    aftermath.py    what must hold once the faults have stopped
    simulation.py   one seed, from its world to its violations
    soak.py         many seeds on all cores
    mutations.py    workers without one of the conditions, which all this must notice

`make soak SEEDS=17` replays one seed and prints its schedule; `make soak` plays many.
"""

from tests import conftest

ENVIRONMENT = conftest.__name__
"""Imported first: Powertools reads its variables when the reconciler package is imported."""
