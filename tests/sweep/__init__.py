"""A crash at every AWS call: what happens to the call, the triggers that follow, and what is left in the end.

    scenes         what is disturbed: nights on one and two segments, and every verb of an operator
    disturbances   what happens to one call
    calls          the client's calls, counted as they are made, and the one that is disturbed
    provider       somebody's REST interface as the source; each request is a call
    snapshot       the world as it was before, for the next point
    judge          what must be the same as without it, and what must hold in any case
    play           one scene, played once undisturbed and then once for each point
    sweeping       all points of a scene, or every nth

A point is one call of a scene and one disturbance. The calls are those that the undisturbed scene makes, so a new call
is swept by itself. `make sweep` plays every point, the test suite every nth.

On moto: nothing here is concurrent, so it does not matter that moto takes back a failed transaction by restoring whole
tables. It remembers no request tokens: a request that is sent again meets its own conditions, as on DynamoDB after ten
minutes. One test sends the same again on the emulator, which remembers them.
"""

import tests.conftest  # noqa: F401 - sets the environment, before Powertools is imported
