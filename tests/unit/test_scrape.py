"""Metrics pages read, added up by concept, and followed through resets and replicas that fail."""

import asyncio
import time

import pytest
from fake_endpoint import reply, serving

from auditor.measurement import MetricsPage, Served
from auditor.probe import scrape
from auditor.probe.exposition import Series, parse_page
from auditor.probe.scrape import scraper, snapshot
from auditor.profile import Endpoint, Profile


def vllm_page(engine: str = "0", *, generated: float = 100, running: float = 2, usage: float = 0.25) -> str:
    labels = f'engine="{engine}",model_name="tiny"'
    return f"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{labels}}} {running}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{{labels}}} {usage}
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{{labels}}} {generated}
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{{labels}}} 3.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{{labels},le="0.1"}} 1.0
vllm:time_to_first_token_seconds_bucket{{{labels},le="1.0"}} 4.0
vllm:time_to_first_token_seconds_bucket{{{labels},le="+Inf"}} 5.0
vllm:time_to_first_token_seconds_count{{{labels}}} 5.0
vllm:time_to_first_token_seconds_sum{{{labels}}} 6.5
# TYPE vllm:some_other_thing gauge
vllm:some_other_thing 7.0
"""


def series(*texts: str):
    return [parse_page(text, "text/plain", "u").series for text in texts]


def test_one_page_by_concept():
    seen = snapshot(series(vllm_page()), "vllm", 1.5, "during")
    assert (seen.at, seen.phase) == (1.5, "during")
    assert seen.values == {"running": 2, "kv_usage": 0.25, "generation_tokens": 100, "preemptions": 3}
    ttft = seen.histograms["ttft"]
    assert (ttft.sum, ttft.count) == (6.5, 5)
    assert ttft.buckets == ((0.1, 1), (1.0, 4), (float("inf"), 5))


def test_ranks_and_replicas_add_up_and_the_fullest_cache_counts():
    both_ranks = vllm_page("0") + "\n".join(
        line for line in vllm_page("1", generated=50, running=1, usage=0.75).splitlines() if not line.startswith("#")
    )
    seen = snapshot(series(both_ranks, vllm_page(usage=0.5)), "vllm", 0, "after")
    assert seen.values["running"] == 2 + 1 + 2
    assert seen.values["generation_tokens"] == 100 + 50 + 100
    assert seen.values["kv_usage"] == 0.75
    assert seen.histograms["ttft"].count == 15
    assert seen.histograms["ttft"].buckets[0] == (0.1, 3)


@pytest.mark.parametrize("rank", ["tp_rank", "pp_rank", "attn_cp_rank", "moe_ep_rank"])
def test_the_same_engine_shown_by_every_rank_counts_once(rank):
    text = "# TYPE sglang:num_running_reqs gauge\n" + "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",{rank}="{place}"}} {dp + 4}\n' for dp in (0, 1) for place in (0, 1)
    )
    assert snapshot(series(text), "sglang", 0, "during").values["running"] == 4 + 5


def test_of_several_names_the_preferred_one_is_taken():
    text = (
        "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 0.5\n"
        "# TYPE vllm:gpu_cache_usage_perc gauge\nvllm:gpu_cache_usage_perc 0.9\n"
    )
    assert snapshot(series(text), "vllm", 0, "during").values == {"kv_usage": 0.5}
    old = "# TYPE vllm:gpu_cache_usage_perc gauge\nvllm:gpu_cache_usage_perc 0.9\n"
    assert snapshot(series(old), "vllm", 0, "during").values == {"kv_usage": 0.9}


def test_a_renamed_prefix_is_the_same_metric():
    text = "# TYPE ray_vllm_num_requests_running gauge\nray_vllm_num_requests_running 3\n"
    assert snapshot(series(text), "vllm", 0, "during").values == {"running": 3}


SGLANG = "# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs 1\n"


def test_sglang_shows_no_retractions_before_the_first():
    assert snapshot(series(SGLANG), "sglang", 0, "before", version="0.5.23").values["preemptions"] == 0
    first = SGLANG + "# TYPE sglang:num_retracted_requests_total counter\nsglang:num_retracted_requests_total 3\n"
    assert snapshot(series(first), "sglang", 0, "after", version="0.5.23").values["preemptions"] == 3


def test_absent_is_not_zero_elsewhere():
    assert "preemptions" not in snapshot(series(SGLANG), "sglang", 0, "before", version="0.5.0").values
    other = "# TYPE sglang:http_requests_active gauge\nsglang:prompt_tokens_total 1\n"
    assert "preemptions" not in snapshot(series(other), "sglang", 0, "before", version="0.5.23").values
    vllm = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n"
    assert "preemptions" not in snapshot(series(vllm), "vllm", 0, "before").values


def test_a_gauge_of_the_moment_is_no_counter():
    text = SGLANG + "# TYPE sglang:num_retracted_reqs gauge\nsglang:num_retracted_reqs 5\n"
    assert snapshot(series(text), "sglang", 0, "before", version="0.5.23").values["preemptions"] == 0


def test_a_page_without_a_known_metric_gives_nothing():
    assert snapshot(series("# TYPE up gauge\nup 1\n"), "vllm", 0, "during") is None
    assert snapshot([], "vllm", 0, "during") is None


# -------------------------------------------------------------------------------------------------------------- parsing


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<html><body>no</body></html>", "text/html"),
        ("<!doctype html>", "text/plain"),
        ('{"error": "Unauthorized"}', "application/json"),
        ("[]", "application/json"),
        ("", "text/plain"),
        ("# HELP nothing Nothing.\n", "text/plain"),
        ("not found", "text/plain"),
    ],
)
def test_what_is_no_metrics_page(text, kind):
    assert parse_page(text, kind, "u") is None


def test_broken_lines_are_left_out():
    text = (
        vllm_page() + 'vllm:num_requests_waiting{broken 3\n)(*&^\nvllm:x{a="b} 1\n' + "y" * 100_000 + " 1\nok 1 2 3 4\n"
    )
    read = parse_page(text, "text/plain", "u")
    assert "vllm:num_requests_running" in read.names
    assert "vllm:num_requests_waiting" not in read.names
    assert read.skipped >= 2


def test_values_that_are_no_numbers_are_left_out():
    read = parse_page("a NaN\nb +Inf\nc 1\n", "text/plain", "u")
    assert read.series == (Series("c", {}, 1.0),)


def test_open_metrics_is_read_by_its_own_rules():
    text = "# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total 5.0\n# EOF\n"
    read = parse_page(text, "application/openmetrics-text; version=1.0.0", "u")
    assert read.page.types == {"vllm:generation_tokens_total": "counter"}
    unfinished = parse_page(text.replace("# EOF\n", ""), "application/openmetrics-text; version=1.0.0", "u")
    assert unfinished.names == {"vllm:generation_tokens_total"}


def test_the_page_lists_names_types_and_bounds():
    read = parse_page(vllm_page(), "text/plain", "http://h/metrics").page
    assert read.url == "http://h/metrics"
    assert read.types["vllm:generation_tokens_total"] == "counter"
    assert read.types["vllm:time_to_first_token_seconds_sum"] == "histogram"
    assert read.buckets == {"vllm:time_to_first_token_seconds": (0.1, 1.0)}
    assert read.exporter is None


# ------------------------------------------------------------------------------------------------------------- scraping


class Replica:
    """A page that changes: what it shows next, or None for an answer of 500."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __call__(self, asked):
        if self.text is None:
            return reply("", 500)
        return reply(self.text, kind="text/plain; version=0.0.4")


def scraping(replicas, steps, engine="vllm"):
    """Scrape these replicas, `steps` being (phase, what to change before)."""

    async def run():
        async with serving({f"GET /{i}": replica for i, replica in enumerate(replicas)}) as fake:
            urls = [f"{fake.origin}/{i}" for i in range(len(replicas))]
            pages = tuple(MetricsPage(url=url, types={}) for url in urls)
            profile = Profile(version=1, name="t", endpoint=Endpoint(url=f"{fake.origin}/v1"))
            read = scraper(profile, Served(engine=engine, api="chat", pages=pages), "sk-key-1")
            seen = []
            for phase, change in steps:
                change()
                seen.append(await read(0.0, phase))
            await read.close()
            return seen, fake

    return asyncio.run(run())


def nothing():
    """Nothing changes."""


def test_a_replica_that_restarts_does_not_set_the_counters_back():
    first, second = Replica(vllm_page(generated=1000)), Replica(vllm_page(generated=1000))

    def restart():
        first.text, second.text = vllm_page(generated=5), vllm_page(generated=1500)

    seen, _ = scraping([first, second], [("before", nothing), ("during", restart), ("after", nothing)])
    assert [one.values["generation_tokens"] for one in seen] == [2000, 1000 + 5 + 1500, 2505]


def test_a_replica_that_does_not_answer_keeps_its_counters_and_has_no_gauges():
    first, second = Replica(vllm_page(running=2)), Replica(vllm_page(running=3))

    def fail():
        second.text = None

    seen, _ = scraping([first, second], [("before", nothing), ("after", fail)])
    assert [one.values["running"] for one in seen] == [5, 2]
    assert [one.values["generation_tokens"] for one in seen] == [200, 200]
    assert [one.histograms["ttft"].count for one in seen] == [10, 10]


def test_histograms_are_read_before_and_after_only():
    seen, _ = scraping([Replica(vllm_page())], [("before", nothing), ("during", nothing), ("after", nothing)])
    assert [sorted(one.histograms) for one in seen] == [["ttft"], [], ["ttft"]]
    assert seen[1].values == seen[0].values


def test_no_page_at_all_is_no_snapshot():
    seen, _ = scraping([Replica(None)], [("before", nothing)])
    assert seen == [None]


def test_the_key_goes_along():
    _, fake = scraping([Replica(vllm_page())], [("before", nothing)])
    assert fake.asked[0].headers["authorization"] == "Bearer sk-key-1"


def test_there_is_nothing_to_scrape_without_an_engine_page():
    profile = Profile(version=1, name="t", endpoint=Endpoint(url="http://h/v1"))
    exporter = MetricsPage(url="http://h:9400/metrics", types={}, exporter="dcgm")
    assert scraper(profile, Served(engine="vllm", api="chat", pages=(exporter,)), None) is None
    page = MetricsPage(url="http://h/metrics", types={})
    assert scraper(profile, Served(engine="generic", api="chat", pages=(page,)), None) is None


def test_a_page_that_hangs_is_waited_for_once_only(monkeypatch):
    monkeypatch.setattr(scrape, "_TIMEOUT", {"before": 0.5, "during": 0.5, "after": 0.5})
    monkeypatch.setattr(scrape, "_AFTER_SILENCE", 0.05)
    calm = Replica(vllm_page())
    answers = {"GET /0": None, "GET /1": calm}

    async def run():
        async with serving(answers) as fake:
            pages = tuple(MetricsPage(url=f"{fake.origin}/{i}", types={}) for i in range(2))
            profile = Profile(version=1, name="t", endpoint=Endpoint(url=f"{fake.origin}/v1"))
            read = scraper(profile, Served(engine="vllm", api="chat", pages=pages), None)
            took = []
            for _ in range(3):
                began = time.monotonic()
                seen = await read(0.0, "before")
                took.append(time.monotonic() - began)
                assert seen.values["running"] == 2
            await read.close()
            return took

    first, second, third = asyncio.run(run())
    assert first > 0.4
    assert second + third < 0.4


def test_a_page_tells_the_values_of_its_rank_labels():
    text = (
        'vllm:kv_cache_usage_perc{engine="0",model_name="m",pid="71"} 0.5\n'
        'vllm:kv_cache_usage_perc{engine="1",model_name="m",pid="72"} 0.5\n'
        'process_open_fds{pid="9"} 4\n'
    )
    page = parse_page(text, "text/plain", "u")
    assert page is not None
    assert page.page.ranks == {"engine": ("0", "1"), "pid": ("71", "72")}


def test_names_are_those_of_the_page_also_of_counters_without_total() -> None:
    """Text Generation Inference and Triton count in names without _total; a query must name them as they are."""
    text = '# TYPE tgi_request_success counter\ntgi_request_success{m="a"} 5\n# TYPE x_total counter\nx_total 1\n'
    page = parse_page(text, "text/plain", "u")
    assert page is not None
    assert page.page.types == {"tgi_request_success": "counter", "x_total": "counter"}
    assert {one.name: one.value for one in page.series} == {"tgi_request_success": 5.0, "x_total": 1.0}
