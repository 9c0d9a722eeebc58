"""The `audit` program: one line on stderr and the right exit code for everything that can go wrong."""

import errno
import os
import signal
import sys
import traceback

from auditor.cli.exits import INTERRUPTED, NOT_MEASURED
from auditor.errors import AuditError, ProfileError, UsageError


def _open_closed_streams() -> None:
    """A standard stream that the caller closed (`2>&-`) leads nowhere: nothing opened later may take its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _say(message: str) -> None:
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:
        pass


def _harmless(error: Exception, limit: int) -> str:
    """An error in words; what a server sent is in there, so control codes go and only a profile has several lines; so
    may be a URL that the user gave, with a password in it.
    """
    from auditor.redact import without_userinfo
    from auditor.report.words import clean

    lines = str(error).splitlines() if isinstance(error, ProfileError) else [str(error)]
    return "\n".join(clean(without_userinfo(line), limit) for line in lines)


def _stdout_is_gone() -> bool:
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def _trace() -> bool:
    wanted = bool(os.environ.get("AUDIT_TRACEBACK"))
    if wanted:
        traceback.print_exc()
    return wanted


def _unexpected(error: Exception) -> int:
    if isinstance(error, BrokenPipeError) and _stdout_is_gone():
        return NOT_MEASURED
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:  # typer's own help
        _stdout_is_gone()
        _say(f"audit: stdout cannot be written ({error.strerror}); send it to another place")
        return UsageError.exit_code
    if not _trace():
        what = f"{type(error).__name__}: {_harmless(error, 300)}"
        _say(f"audit: internal error: {what} (set AUDIT_TRACEBACK=1 to see where; please report it)")
    return NOT_MEASURED


def _end_quietly() -> None:
    """After an interrupted run all is written: a second Ctrl-C must not change the exit code."""
    if callable(handler := signal.getsignal(signal.SIGINT)) and handler is not signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def main() -> None:
    """Run the program and exit."""
    _open_closed_streams()
    try:
        from auditor.cli.app import program  # here, so that Ctrl-C while it is read ends without a traceback

        program(sys.argv[1:])
    except AuditError as error:
        _trace()
        name = "" if isinstance(error, ProfileError) else "audit: "  # problems start with file:line:column, for editors
        _say(name + _harmless(error, 1000))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        sys.exit(_unexpected(error))
    finally:
        _end_quietly()


if __name__ == "__main__":
    main()
