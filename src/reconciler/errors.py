"""What can go wrong, split by what happens next.

ReconcilerError
├── Refused             nothing was written; the same input fails again until a person changes it
│   ├── InvalidTrigger        the event; names the field
│   ├── VerbRefused           an operator's command that cannot be done as things stand; says what to do
│   ├── SettingsError         an environment variable; names it
│   ├── SegmentCountMismatch  the stack's parameter differs from the tables' data
│   ├── TableKeysMismatch     an existing table is not keyed as a source or view must be; names it
│   ├── SchemaTooNew          a row was written by newer code
│   ├── RowMissing            a row that must exist is gone (LeaseRowMissing says how to restore a lease)
│   └── RowInvalid            a control row cannot be read
├── Stopped             the holder stops at once and writes nothing that needs the lease
│   ├── LeaseLost             somebody else owns the segment now
│   └── Paused                an operator or the revocation guard paused the job
├── OutOfTime           the invocation has no time for one more call: a clean yield
├── TransientFailure    AWS or the source did not answer, or throttled: the attempt is given back, the next tick retries
├── SourceWait          the source asks for a pause that no lease is held for: a clean yield until then
├── GuardTripped        too many revocations: the job pauses itself and waits for a person
├── SourceInvalid       the source answered what cannot be worked with: the attempt fails
└── SourceOrderError    a source or view broke its contract: the attempt fails
"""

from __future__ import annotations


class ReconcilerError(Exception):
    """Base of every error this package raises on purpose."""


class Refused(ReconcilerError):
    """Nothing was written; repeating it unchanged cannot help."""


class InvalidTrigger(Refused):
    """The event cannot be a trigger.

    `field` is the path of the offending field, as in `detail.trigger`.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"invalid trigger: {field}: {problem}")
        self.field = field


class VerbRefused(Refused):
    """An operator's command cannot be done as things stand; the message says why, and what to do."""


class SettingsError(Refused):
    """An environment variable is missing or out of bounds; the message names it."""


class SegmentCountMismatch(Refused):
    """The configured segment count is not the one the tables were filled with."""


class TableKeysMismatch(Refused):
    """A source or view table has other keys than `segment`, `account_id`; the message names it."""


class SchemaTooNew(Refused):
    """A row carries a newer `schema` than this code knows: deploy the newer code again."""


class RowMissing(Refused):
    """A row that every later write depends on is gone; nothing was created in its place."""


class LeaseRowMissing(RowMissing):
    """A lease row is gone and its generation with it; acquiring anew could let a stale holder write."""

    def __init__(self, segment: str) -> None:
        super().__init__(
            f"LEASE#{segment} is missing. It is never created again by a run, since its generation would restart. "
            "Put it back with the command ReleaseLease, which finds a generation above every one on record."
        )


class RowInvalid(Refused):
    """A control row holds a value this code cannot read; the message names row and attribute."""


class Stopped(ReconcilerError):
    """The holder may not go on with this segment."""


class LeaseLost(Stopped):
    """The fence refused a write: the segment has another generation or token now."""


class Paused(Stopped):
    """The fence refused a write, or an acquire found the segment, paused."""


class OutOfTime(ReconcilerError):
    """Less than one call budget is left, so no further call was started."""


class TransientFailure(ReconcilerError):
    """AWS or the source throttled, failed or did not answer within the retries; a cause of AWS is chained."""


class SourceWait(ReconcilerError):
    """The source is not to be read for `seconds`: longer than a lease is held, or than there is time."""

    def __init__(self, seconds: float, why: str) -> None:
        super().__init__(f"the source is to be left alone for {seconds:.1f} s: {why}")
        self.seconds = seconds


class GuardTripped(ReconcilerError):
    """A range would revoke more than a person allowed; it was not committed."""


class SourceInvalid(ReconcilerError):
    """The source refused, or its answer breaks the protocol; the message says how, and holds no payload."""


class SourceOrderError(ReconcilerError):
    """Rows came out of order, twice, outside the asked bounds, or with an id that is not text."""
