"""Events that are like an earlier one: what may be counted unread, and what may not."""

import pytest

from auditor.probe import likeness
from auditor.probe.likeness import learn


@pytest.fixture(autouse=True)
def _nothing_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likeness, "_PROVEN", {})


def event(text: str = " the", own: str = "chatcmpl-1", rest: str = "") -> bytes:
    return f'{{"id":"{own}","choices":[{{"delta":{{"content":"{text}"{rest}}}}}]}}'.encode()


class Weigher:
    """Knows that an event's text is between the last two quotes of its content; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, data: bytes) -> int:
        self.asked += 1
        return len(data.split(b'"content":"')[1].split(b'"')[0])


def chunk(data: bytes) -> bytes:
    line = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


def counted(first: bytes, *reads: bytes) -> tuple[int, list[int]]:
    """How many of the reads count as whole chunks like the first event, and what they speak."""
    like = learn(first, Weigher(), "chatcmpl-1")
    assert like is not None
    said: list[int] = []
    counter = like.counter([], said)
    taken = [counter.take(0.0, read) for read in reads]
    assert counter.settle() == (sum(taken), sum(len(read) for read, was in zip(reads, taken, strict=True) if was))
    assert counter.settle() == (0, 0)
    return sum(taken), said


def test_the_proof_holds_for_replies_that_differ_in_their_id() -> None:
    weigh = Weigher()
    assert learn(event(own="chatcmpl-1"), weigh, "chatcmpl-1") is not None
    asked = weigh.asked
    assert learn(event(" of", own="chatcmpl-2"), weigh, "chatcmpl-2") is not None
    assert weigh.asked == asked


def test_another_field_is_proven_anew() -> None:
    weigh = Weigher()
    learn(event(own="chatcmpl-1"), weigh, "chatcmpl-1")
    asked = weigh.asked
    learn(event(own="chatcmpl-2", rest=',"role":"x"'), weigh, "chatcmpl-2")
    assert weigh.asked > asked


@pytest.mark.parametrize("own", ["content1", "choices", "x1"])
def test_an_id_that_could_be_a_word_of_the_event_is_not_taken_out_where_it_would_hide_one(own: str) -> None:
    """Only an id that is long and holds a digit is masked; a name of a field does not."""
    masked = likeness._masked(event(own=own), own)
    assert (masked == event(own=own)) is (own != "content1")


def test_what_does_not_fit_is_remembered_as_such() -> None:
    asked = []

    def never(data: bytes) -> None:
        asked.append(data)

    assert learn(event(), never, "chatcmpl-1") is None
    assert learn(event(own="chatcmpl-2"), never, "chatcmpl-2") is None
    assert len(asked) == 1


def test_many_proofs_take_bounded_room() -> None:
    for number in range(3 * likeness._MOST_PROVEN):
        learn(event(rest=f',"f{number}":0'), Weigher(), "chatcmpl-1")
    assert len(likeness._PROVEN) <= likeness._MOST_PROVEN


def test_whole_chunks_with_one_like_event_each_are_counted() -> None:
    reads = [chunk(event(text)) for text in ("a", " the", "naïve", 'q\\"q', "\\n")]
    assert counted(event(), *reads) == (5, [1, 4, 5, 3, 1])


@pytest.mark.parametrize(
    "read",
    [
        chunk(event())[:-1],
        chunk(event()) + chunk(event()),
        chunk(event("")),
        chunk(event("\\u0041")),
        chunk(event("two\nlines")),
        chunk(event('a","x":"b')),
        chunk(event(own="chatcmpl-2")),
        b"1" + chunk(event()),
        chunk(event()).replace(b"\r\n", b";x\r\n", 1),
        event(),
        b"",
        b"0\r\n\r\n",
        chunk(event("x" * 2000)),
    ],
)
def test_anything_else_is_not_taken(read: bytes) -> None:
    assert counted(event(), chunk(event()), read) == (1, [4])
