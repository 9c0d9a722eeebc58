"""Answers of a fake server by path, whatever the query: for APIs whose questions are in it."""

from typing import Any

from tests.unit.fake_endpoint import Answer


class ByPath(dict[str, Answer]):
    """Answers by "GET /path"; the query of a request does not matter."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key.partition("?")[0], default)


def prometheus_reply(data: Any) -> bytes:
    """A successful answer of Prometheus."""
    from tests.unit.fake_endpoint import reply

    return reply({"status": "success", "data": data})
