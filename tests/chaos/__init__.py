"""Real processes, a real network: workers that race, that are frozen and killed, and messages that are lost and late.

    race.py       eight processes want one lease at the same moment, again and again
    network.py    messages are dropped, delayed, repeated at once and repeated much later
    stalls.py     holders are frozen for longer than their lease, and woken among the work of another
    kills.py      processes are killed, over twenty nights
    stage.py      where each is played: emulator, proxy, tables, nights that are due, workers
    people.py     who changes accounts meanwhile
    traffic.py    every message of the workers, and what becomes of it
    history.py    the transactions that landed, as they passed the proxy
    verdict.py    what must hold in the end
    mutations.py  conditions taken out on the wire, which all this must notice

Chance comes from a seed, but processes and their clocks are real: a seed chooses what is done, it does not repeat what
comes of it. What breaks is told with the seed and the transactions concerned. `make chaos` plays everything and keeps
the figures; the test suite plays less of it.
"""

from tests import conftest

ENVIRONMENT = conftest.__name__
"""Imported first: Powertools reads its variables when the reconciler package is imported."""
