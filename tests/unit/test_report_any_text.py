"""Any text at all, wherever a server or a file could put it: every format stays readable to its readers."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

from hypothesis import example, given, settings
from hypothesis import strategies as st
from machine_formats import COMMANDS, MARKUP, hostile
from prometheus_client.parser import text_string_to_metric_families

from auditor.report.renderers import RENDERERS
from tests.published import gitlab_schema, junit_schema, problems, sarif_schema

PIECES = st.sampled_from(
    [
        *(
            "<",
            ">",
            "&",
            '"',
            "'",
            "`",
            "\\",
            "|",
            "[",
            "]",
            "(",
            ")",
            "{",
            "}",
            "#",
            "##[",
            "::",
            "%",
            "%0A",
            ",",
            "=",
            "\n",
            "\r",
        ),
        *(
            "\x00",
            "\x1b[",
            "\x85",
            "\u2028",
            "\ud800",
            "\udfff",
            "\ufffe",
            "\U000e0001",
            "<script>",
            "</details>",
            "]]>",
            "-->",
        ),
        *("\n::error::", "javascript:", "{{ 7 * 7 }}", "{% raw %}", "\t", " ", "a", "-", "+", "@all", "://"),
    ]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=30).map("".join)
TAGS = ("script", "iframe", "object", "embed", "form", "base", "img")


class _Tags(HTMLParser):
    """The elements and attributes of a page that could do something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.found += [tag] if tag in TAGS else []
        self.found += [
            name for name, value in attrs if name.startswith("on") or (value or "").startswith("javascript:")
        ]


@settings(max_examples=25)
@given(TEXTS)
@example("")
@example(MARKUP)
@example(COMMANDS)
def test_every_format_takes_any_text(text: str) -> None:
    told = {name: render(hostile(text)) for name, render in RENDERERS.items()}
    for name, out in told.items():
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe]", out), name
        if name != "github":
            assert not [x for x in out.splitlines() if re.search(r"^\s*::\w|##\w*\[", x)], name
    assert problems(json.loads(told["sarif"]), sarif_schema()) == []
    assert problems(json.loads(told["gitlab"]), gitlab_schema()) == []
    assert list(junit_schema().iter_errors(told["junit"])) == []
    assert ElementTree.fromstring(told["junit"]).tag == "testsuites"
    assert json.loads(told["json"])["findings"]
    assert len({len(row) for row in csv.reader(io.StringIO(told["csv"]), strict=True)}) == 1
    assert list(text_string_to_metric_families(told["prometheus"]))
    assert all(re.match(r"::(error|warning|notice) ", line) for line in told["github"].splitlines())
    page = _Tags()
    page.feed(told["html"])
    assert page.found == []
