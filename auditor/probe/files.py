"""How many files this process may have open: each connection is one."""

from auditor.errors import UsageError

__all__ = ["allow_files"]


def allow_files(concurrency: int) -> None:
    """Raise this process's limit of open files if the load needs it; UsageError where the system forbids that."""
    try:
        import resource
    except ImportError:  # not on this platform, where sockets are not counted as files
        return
    needed = concurrency + 128
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UsageError(f"concurrency {concurrency} needs {needed} open files, this machine allows {hard}: ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
