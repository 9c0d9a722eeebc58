"""Money, replicas, and what a load takes of a replica: by hand."""

from dataclasses import replace

import pytest

from auditor import spending
from auditor.profile import Traffic
from auditor.testing import H100, LLAMA_8B, make_evidence, make_settings
from auditor.theory import cost, ranking, reach
from auditor.theory.roofline import predict_decode
from auditor.theory.shape import curve

TWO = make_settings(tensor_parallel=2, devices=2)


def test_a_request_s_money_is_shared_by_device_time() -> None:
    """3.60 an hour at 2 requests/s: 0.0005 each, a quarter for 1,000 prompt tokens, the rest for 150 output tokens."""
    found = cost.cost(3.6, 2.0, 0.25, 1000, 150)
    assert found.per_request == pytest.approx(0.0005)
    assert found.per_million_input == pytest.approx(0.125)
    assert found.per_million_output == pytest.approx(2.5)


@pytest.mark.parametrize(("wanted", "one", "replicas"), [(5.0, 2.0, 3), (4.0, 2.0, 2), (0.1, 2.0, 1), (6.0, 0.1, 60)])
def test_replicas_are_whole(wanted: float, one: float, replicas: int) -> None:
    assert cost.replicas(wanted, one) == replicas


def test_a_row_of_the_ranking_costs_its_share_of_the_batch() -> None:
    """Two devices at 1.80 an hour are 0.001 a second; 8 requests share it. While one stays, each of the 7 others brings
    its prompt: a hundredth of that is waited for with each of the 100 tokens, the first included.
    """
    row = ranking.ranked(LLAMA_8B, TWO, H100, 8, (800, 100, 850), 1.8, holds=True, mine=True)
    alone = predict_decode(LLAMA_8B, TWO, H100, 8, 850)
    assert row.request == pytest.approx(row.ttft + 99 * row.tpot + (row.tpot - alone.seconds))
    assert row.tpot > 1.01 * alone.seconds
    assert row.cost == pytest.approx(row.request * 0.001 / 8)
    assert (row.key, row.confidence, row.mine) == (H100.key, "A", True)


def test_the_rate_of_the_healthy_load_is_its_throughput() -> None:
    """200 requests on 16 slots, all of them busy until the last round: completions over time agree within 10 %."""
    evidence = make_evidence()
    (load,) = evidence.loads("slo")
    found = spending.request_rate(evidence)
    assert found is not None
    assert (found.provenance, found.n) == ("measured", 200)
    assert found.value == pytest.approx(200 / load.duration, rel=0.1)


def test_what_lacks_is_said() -> None:
    evidence = make_evidence()
    empty = replace(evidence, profile=replace(evidence.profile, traffic=Traffic()))
    assert spending.prefill_share(empty) == "traffic.classes and traffic.target_concurrency"
    assert spending.request_rate(replace(empty, measurements=())) is None
    bare = replace(evidence, device=None, device_error="none is declared", measurements=())
    assert spending.prefill_share(bare) == "prefill and decode ladders; and for a computed time: none is declared"


def test_fewer_streams_are_faster() -> None:
    """One stream reads 15.0 GB in 5.1 ms at 0.87 of 3.35 TB/s and launches 32 layers in 1.6 ms: over 6 ms."""
    theory = LLAMA_8B, make_settings(), H100
    assert reach.streams_within(*theory, 0.006, 64, 3000, 150) == 0
    some = reach.streams_within(*theory, 0.012, 64, 3000, 150)
    assert 0 < some < 64
    assert reach.token_reach(*theory, some, 3000, 150).seconds <= 0.012
    assert reach.token_reach(*theory, some + 1, 3000, 150).seconds > 0.012
    assert reach.streams_within(*theory, 10.0, 64, 3000, 150) == 64


def test_only_what_a_class_cannot_avoid_is_expected() -> None:
    flat, long = curve(100), curve(8000)
    theory = LLAMA_8B, make_settings(), H100
    assert reach.prompt_reach(*theory, [(0.03, long, flat)], 0.95) is None
    found = reach.prompt_reach(*theory, [(0.9, flat, flat), (0.1, long, flat)], 0.95)
    assert found is not None
    assert found.low > 0.130  # 8,000 tokens at the limit
    reply = reach.reply_reach(*theory, [(0.9, flat, flat), (0.1, long, flat)], 0.95, 16, 800, 100)
    assert reply is not None
    assert reply.seconds > found.seconds + 99 * 0.0045
