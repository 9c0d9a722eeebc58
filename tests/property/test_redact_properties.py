"""A secret survives in none of the forms that the redactor promises to know."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

from hypothesis import given
from hypothesis import strategies as st

from auditor.redact import Redactor

# Printable text without the mark's own character; keys have no blanks at their ends.
texts = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x17F, exclude_characters="*\x7f"), max_size=30)
secrets = texts.map(str.strip).filter(lambda text: len(text) >= 6)
FORMS = [
    str,
    quote,
    quote_plus,
    lambda text: quote(text, safe=""),
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    html.escape,
]


@given(secrets, texts, texts, st.sampled_from(FORMS))
def test_no_form_of_a_secret_survives(secret, before, after, form) -> None:
    assert form(secret) not in Redactor([secret]).text(before + form(secret) + after)


@given(secrets, texts, texts, st.booleans())
def test_base64_around_a_secret_no_longer_tells_it(secret, before, after, padded) -> None:
    text = base64.b64encode((before + secret + after).encode()).decode()
    result = Redactor([secret]).text(text if padded else text.rstrip("="))
    pieces = [
        base64.b64decode(digits + "=" * (-len(digits) % 4))
        for piece in result.split("***")
        for digits in (piece.rstrip("="), piece.rstrip("=")[1:], piece.rstrip("=")[2:], piece.rstrip("=")[3:])
        if len(digits) % 4 != 1
    ]
    assert "***" in result
    assert all(secret.encode() not in piece for piece in pieces)


@given(st.lists(secrets, min_size=1, max_size=4), st.data())
def test_many_secrets_in_any_order_all_go(many, data) -> None:
    order = data.draw(st.permutations(many))
    result = Redactor(order).text(" | ".join(many))
    assert not any(secret in result for secret in many if "|" not in secret)
