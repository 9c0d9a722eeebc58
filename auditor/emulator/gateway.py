"""What stands between users and the engine: a rate limit and a proxy's own error pages."""

from collections.abc import Callable

from auditor.emulator.http import Response, json_response
from auditor.emulator.spec import Faults

__all__ = ["Gateway"]

HTML = (
    "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n"
    "<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
)


class Gateway:
    """Counts generation requests in fixed windows, and turns errors into HTML where the spec says so."""

    def __init__(self, faults: Faults, now: Callable[[], float]) -> None:
        self._faults = faults
        self._now = now
        self._window = now()
        self._taken = 0

    def limit(self) -> Response | None:
        """A 429 where the quota of this window is used up, None where the request may pass."""
        quota, window = self._faults.quota, self._faults.quota_window
        if not quota:
            return None
        now = self._now()
        if now >= self._window + window:
            self._window += (now - self._window) // window * window
            self._taken = 0
        if self._taken < quota:
            self._taken += 1
            return None
        rest = self._window + window - now
        headers = (
            ("retry-after", str(int(rest) + 1)),
            ("x-ratelimit-limit-requests", str(quota)),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", f"{rest:.3f}s"),
        )
        message = f"Rate limit reached: {quota} requests per {window:g} s. Please try again in {rest:.3f}s."
        error = {"message": message, "type": "requests", "param": None, "code": "rate_limit_exceeded"}
        return json_response({"error": error}, 429, headers)

    def broken(self) -> Response | None:
        """A 502 where the gateway is said to be broken."""
        return self._page("502 Bad Gateway", 502) if self._faults.html_errors else None

    def dress(self, response: Response) -> Response:
        """An engine's error as the gateway shows it."""
        if self._faults.html_errors and response.status >= 400 and response.content_type != "text/html":
            return self._page(f"{response.status} Error", response.status)
        return response

    @staticmethod
    def _page(title: str, status: int) -> Response:
        return Response(status, HTML.format(title=title).encode(), "text/html")
