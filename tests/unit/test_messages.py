"""What requests say: messages by API, and pictures, against the PNG specification."""

import json
import struct
import zlib
from base64 import b64decode

import pytest

from auditor.probe.messages import Message
from auditor.probe.pictures import data_url, png
from auditor.probe.target import Target, request_body

TALK = (Message("user", "hello"), Message("assistant", "hi"), Message("user", "how are you"))


def body(api: str, said: object) -> dict[str, object]:
    target = Target(url="http://h/v1", model="m", api=api)  # type: ignore[arg-type]
    return json.loads(request_body(target, said, 5))  # type: ignore[arg-type, no-any-return]


def test_a_conversation_is_sent_whole() -> None:
    assert body("chat", TALK)["messages"] == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "how are you"},
    ]
    assert body("completions", TALK)["prompt"] == "hello\nhi\nhow are you"


def test_a_text_is_the_users_message() -> None:
    assert body("chat", "hello")["messages"] == [{"role": "user", "content": "hello"}]
    assert body("completions", "hello")["prompt"] == "hello"


def test_pictures_are_parts_of_their_message() -> None:
    [message] = body("chat", [Message("user", "what is it", ("data:image/png;base64,AA==",))])["messages"]  # type: ignore[misc]
    assert message["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "text", "text": "what is it"},
    ]


def chunks(data: bytes) -> dict[bytes, bytes]:
    """The chunks of a PNG by name; each is length, name, data, CRC of name and data (PNG, 5.3)."""
    assert data[:8] == bytes([137, 80, 78, 71, 13, 10, 26, 10])
    found, at = {}, 8
    while at < len(data):
        [size] = struct.unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size]) == (zlib.crc32(name + body),)
        found[name], at = body, at + 12 + size
    return found


@pytest.mark.parametrize(("width", "height"), [(1, 1), (16, 16), (33, 17), (640, 480)])
def test_a_picture_is_a_png_of_its_size(width: int, height: int) -> None:
    found = chunks(png(width, height, "k"))
    assert list(found) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", found[b"IHDR"]) == (width, height, 8, 3, 0, 0, 0)
    assert len(found[b"PLTE"]) == 768
    pixels = zlib.decompress(found[b"IDAT"])
    assert len(pixels) == height * (1 + width)
    assert set(pixels[:: 1 + width]) == {0}  # the filter of each row


def test_another_key_is_another_picture() -> None:
    assert data_url(64, 64, "a") == data_url(64, 64, "a") != data_url(64, 64, "b")
    assert b64decode(data_url(64, 64, "a").partition(",")[2]) == png(64, 64, "a")
