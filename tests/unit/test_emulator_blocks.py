"""The paged pool: nothing is lost, nothing is given out twice, cached units are shared and evicted in order."""

from hypothesis import given
from hypothesis import strategies as st

from auditor.emulator.blocks import Pool, Sequence, unit_keys


def test_pages_are_rounded_up():
    pool = Pool(160, 16, 16)
    sequence = Sequence()
    assert pool.grow(sequence, 17)
    assert (pool.used, pool.free) == (32, 128)
    assert pool.grow(sequence, 32)
    assert pool.used == 32


def test_a_full_pool_refuses_and_changes_nothing():
    pool = Pool(64, 16, 16)
    first, second = Sequence(), Sequence()
    assert pool.grow(first, 48)
    assert not pool.grow(second, 17)
    assert (pool.used, pool.free, second.own) == (48, 16, 0)
    pool.release(first)
    assert pool.free == 64


def test_keys_stand_for_everything_before_them():
    keys = unit_keys(list("abcdefghij"), 4)
    assert len(keys) == 2
    assert unit_keys(list("abcdxxxx"), 4)[0] == keys[0]
    assert unit_keys(list("xbcdefgh"), 4)[1] != keys[1]


def test_a_cached_prefix_is_shared_and_counted_once():
    pool = Pool(160, 16, 16)
    keys = unit_keys(list(range(32)), 16)
    first = Sequence()
    pool.grow(first, 40)
    pool.publish(first, keys)
    second = Sequence()
    assert pool.hits(keys) == 2
    pool.share(second, keys)
    assert pool.grow(second, 40)
    assert pool.used == 32 + 16 + 16  # two shared units, and one page each for the last eight tokens
    pool.release(first)
    assert pool.used == 48
    pool.release(second)
    assert (pool.used, pool.idle, pool.free) == (0, 32, 128)


def test_idle_units_are_evicted_last_first():
    pool = Pool(64, 16, 16)
    keys = unit_keys(list(range(48)), 16)
    first = Sequence()
    pool.grow(first, 48)
    pool.publish(first, keys)
    pool.release(first)
    assert pool.grow(Sequence(), 32)  # 16 free, so one unit goes: the last one of the prompt
    assert pool.hits(keys) == 2


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 200), st.booleans()), max_size=60))
def test_slots_are_conserved(moves):
    """Whatever sequence of growing, publishing and releasing: used + idle + free = capacity, none negative."""
    pool = Pool(320, 16, 16)
    holders = {}
    for name, tokens, leave in moves:
        sequence = holders.setdefault(name, Sequence())
        if leave:
            pool.release(sequence)
        else:
            keys = unit_keys([name % 3] * 64, 16)
            if not sequence.keys and not sequence.own:
                pool.share(sequence, keys[: pool.hits(keys)])
            if pool.grow(sequence, tokens):
                whole = min(len(keys), (len(sequence.keys) * 16 + sequence.own) // 16)
                pool.publish(sequence, keys[len(sequence.keys) : whole])
        assert pool.used + pool.idle + pool.free == 320
        assert min(pool.used, pool.idle, pool.free, pool.available) >= 0
        own = sum(sequence.own for sequence in holders.values())
        shared = {key for sequence in holders.values() for key in sequence.keys}
        assert pool.used == own + 16 * len(shared)
