"""Prompts: exact in words, unique from the first word on, the same again for the same seed and nonce."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.errors import PreflightFailed
from auditor.loads import Shape
from auditor.probe.prompts import CYCLE, Prompts, calibrate, filler


def shape(tokens: int, prefix: int | None = None, prefix_tokens: int = 0, cls: str = "chat") -> Shape:
    return Shape(cls=cls, prompt_tokens=tokens, output_tokens=8, prefix=prefix, prefix_tokens=prefix_tokens)


@pytest.mark.parametrize(
    ("tokens", "per_word", "template", "words"),
    [(100, 1.0, 0, 100), (100, 1.0, 20, 80), (100, 2.0, 20, 40), (1000, 1.25, 0, 800), (5, 1.0, 20, 1), (1, 3.0, 0, 1)],
)
def test_words_for_tokens(tokens: int, per_word: float, template: int, words: int) -> None:
    prompts = Prompts(0, per_word, template)
    assert len(prompts.make(shape(tokens), 0, "l").split()) == words


def test_the_same_seed_and_nonce_give_the_same_prompt_and_any_change_another() -> None:
    def made(seed: int = 1, nonce: str = "n", index: int = 0, load: str = "l") -> str:
        return Prompts(seed, 1.0, 0, nonce=nonce).make(shape(200), index, load)

    assert made() == made()
    assert len({made(), made(seed=2), made(nonce="o"), made(index=1), made(load="m")}) == 5


def test_a_second_run_does_not_meet_its_own_prompts() -> None:
    assert Prompts(1, 1.0, 0).make(shape(50), 0, "l") != Prompts(1, 1.0, 0).make(shape(50), 0, "l")


def test_no_two_prompts_share_a_block_of_sixteen_words_at_their_start() -> None:
    prompts = Prompts(7, 1.0, 0, nonce="")
    starts = [
        tuple(prompts.make(shape(tokens), index, "l").split()[:16]) for index in range(300) for tokens in (16, 400)
    ]
    assert len(set(starts)) == 600
    common = max(
        next((n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), 16)
        for a, b in combinations(starts[:200], 2)
    )
    assert common < 5


def test_words_are_used_evenly_so_that_lengths_are_exact_with_any_tokenizer() -> None:
    prompts = Prompts(3, 1.0, 0, nonce="")
    counts = Counter(prompts.make(shape(10 * CYCLE + 5), 0, "l").split())
    assert (len(counts), set(counts.values())) == (CYCLE, {10, 11})
    # a tokenizer that cuts each word into letters counts the same for every prompt of full cycles
    assert len({len(prompts.make(shape(4 * CYCLE), index, "l").replace(" ", "")) for index in range(20)}) == 1


def test_shared_prefixes_are_shared_by_number_and_class() -> None:
    prompts = Prompts(3, 1.0, 0, nonce="")

    def start(index: int, number: int, cls: str = "chat", load: str = "l") -> list[str]:
        words = prompts.make(shape(300, number, 200, cls), index, load).split()
        assert len(words) == 300
        return words

    assert start(0, 1)[:200] == start(1, 1)[:200] == start(0, 1, load="m")[:200]
    assert start(0, 1)[200:216] != start(1, 1)[200:216]
    assert start(0, 1)[:200] != start(0, 2)[:200]
    assert start(0, 1)[:200] != start(0, 1, cls="rag")[:200]


def test_a_prefix_as_long_as_the_prompt_leaves_a_word_of_its_own() -> None:
    prompts = Prompts(3, 1.0, 0, nonce="")
    assert len(prompts.make(shape(10, 0, 50), 0, "l").split()) == 10
    assert len(prompts.make(shape(1, 0, 50), 0, "l").split()) == 1


def test_own_texts_are_cut_and_strung_to_length_behind_a_unique_start() -> None:
    prompts = Prompts(3, 1.0, 0, texts=["alpha beta gamma", "", "delta epsilon"], nonce="")
    first, second = prompts.make(shape(100), 0, "l").split(), prompts.make(shape(100), 1, "l").split()
    assert len(first) == len(second) == 100
    assert first[:16] != second[:16]
    assert set(first[16:]) <= {"alpha", "beta", "gamma", "delta", "epsilon"}
    assert len(prompts.make(shape(4), 0, "l").split()) == 4


def test_filler_depends_on_its_key_alone() -> None:
    assert filler(200, "a") == filler(200, "a") != filler(200, "b")
    assert [len(filler(n, "a").split()) for n in (0, 1, 64, 65, 128, 500)] == [0, 1, 64, 65, 128, 500]


# --------------------------------------------------------------------------------------------------------- calibration


def test_calibration_finds_tokens_per_word_and_the_template() -> None:
    assert calibrate([(64, 84), (256, 276)]) == (1.0, 20)
    assert calibrate([(64, 138), (128, 266)]) == (2.0, 10)
    assert calibrate([(100, 130)]) == (1.3, 0)


@given(st.integers(1, 5), st.integers(0, 200), st.lists(st.integers(1, 5000), min_size=2, max_size=5, unique=True))
def test_calibration_is_exact_for_a_regular_tokenizer(per_word: int, template: int, words: list[int]) -> None:
    slope, found = calibrate([(n, n * per_word + template) for n in words])
    assert slope == pytest.approx(per_word)
    assert found == template


@pytest.mark.parametrize("counts", [[], [(64, 50), (256, 50)], [(64, 90), (256, 20)], [(64, 0)]])
def test_a_count_that_does_not_follow_the_prompt_is_refused(counts: list[tuple[int, int]]) -> None:
    with pytest.raises(PreflightFailed, match="prompt lengths"):
        calibrate(counts)


# ------------------------------------------------------------------------------------------- conversations and pictures


def test_a_later_turn_says_what_is_new() -> None:
    """1,000 tokens of which 700 were said: 300 words; the first turn says all of its own."""
    prompts = Prompts(0, 1.0, 20)
    first = Shape(cls="c", prompt_tokens=500, output_tokens=8, talk=0)
    later = Shape(cls="c", prompt_tokens=1000, output_tokens=8, talk=0, turn=1, prefix_tokens=700)
    assert len(prompts.message(first, 0, "l").text.split()) == 480
    assert len(prompts.message(later, 1, "l", held=700).text.split()) == 300
    assert len(prompts.message(later, 1, "l", held=5000).text.split()) == 1


def test_pictures_take_their_tokens_of_the_prompt() -> None:
    prompts = Prompts(0, 1.0, 20, picture_tokens={(640, 480): 300})
    shape = Shape(cls="c", prompt_tokens=1000, output_tokens=8, images=((640, 480), (640, 480)))
    message = prompts.message(shape, 0, "l")
    assert len(message.text.split()) == 1000 - 20 - 600
    assert len(set(message.pictures)) == 2
    assert message == prompts.message(shape, 0, "l") != prompts.message(shape, 1, "l")


def test_blocks_are_the_same_text_wherever_their_number_comes_up() -> None:
    """Blocks of 512 tokens at two tokens a word: 256 words each."""
    prompts = Prompts(0, 2.0, 0)

    def words(index: int, *blocks: int) -> list[str]:
        return prompts.make(Shape(cls="c", prompt_tokens=2000, output_tokens=8, blocks=blocks), index, "l").split()

    first, second, other = words(0, 7, 8), words(1, 7, 8), words(2, 7, 9)
    assert [len(text) for text in (first, second, other)] == [1000] * 3
    assert first[:512] == second[:512]
    assert first[512:528] != second[512:528]
    assert first[:256] == other[:256]
    assert first[256:272] != other[256:272]


def test_a_prompt_of_blocks_alone_keeps_a_word_of_its_own() -> None:
    shape = Shape(cls="c", prompt_tokens=1024, output_tokens=8, blocks=(1, 2))
    made = [Prompts(0, 1.0, 0, nonce="n").make(shape, index, "l").split() for index in (0, 1)]
    assert [len(words) for words in made] == [1024, 1024]
    assert made[0][:1023] == made[1][:1023]
