"""What does each of an operator's verbs. Imported once a command comes: the ticks of a day need none of it."""

from __future__ import annotations

from reconciler.closing import acknowledge, skip
from reconciler.fencing import release_lease
from reconciler.pausing import pause_job, resume_job
from reconciler.preview import preview
from reconciler.rerun import rerun
from reconciler.verbs import Verb
from reconciler.verify import verify

DOES: dict[str, Verb] = {
    "Rerun": rerun,
    "Skip": skip,
    "Acknowledge": acknowledge,
    "Pause": pause_job,
    "Resume": resume_job,
    "ReleaseLease": release_lease,
    "Verify": verify,
    "Preview": preview,
}
