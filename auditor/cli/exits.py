"""The exit codes. Fixed for ever: pipelines act on them."""

__all__ = ["EXITS", "INCONCLUSIVE", "INTERRUPTED", "NOT_MEASURED", "NOT_READY", "READY", "USAGE"]

READY = 0
NOT_READY = 1
USAGE = 2
NOT_MEASURED = 3
INCONCLUSIVE = 4
INTERRUPTED = 130

EXITS: dict[int, str] = {
    READY: "READY",
    NOT_READY: "NOT READY",
    USAGE: "profile, file or usage error",
    NOT_MEASURED: "nothing could be measured",
    INCONCLUSIVE: "INCONCLUSIVE",
    INTERRUPTED: "interrupted; what was measured is saved and judged",
}
