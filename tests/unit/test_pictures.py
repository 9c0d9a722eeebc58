"""What each picture shows of evidence whose numbers are known, and that it shows none where there is nothing."""

import re
from dataclasses import replace

import pytest
from drawn_reports import failing, healthy, offline, stopped

from auditor.evidence import Coverage, CoverageItem
from auditor.measurement import Histogram
from auditor.report.figures import figures
from auditor.report.pictures import cache, ladder, latency, memory, observed, parts, roofline, tps, ttft
from auditor.report.pictures.gallery import gallery
from auditor.testing import make_evidence, make_measurement, make_profile, make_sample, make_settings, with_slo
from auditor.watch import Observed, Watch

REPORTS = {"healthy": healthy, "failing": failing, "offline": offline, "stopped": stopped}


def _rows(picture):
    return [dict(zip(picture.table.head, row, strict=True)) for row in picture.table.rows]


def _with(evidence):
    return replace(healthy(), evidence=evidence)


@pytest.mark.parametrize("name", REPORTS)
def test_every_picture_has_its_words_its_numbers_and_a_form_in_characters(name):
    pictures = gallery(REPORTS[name]())
    assert len({p.key for p in pictures}) == len(pictures) > 2
    for picture in pictures:
        assert picture.summary.endswith(".")
        assert picture.table.rows
        assert picture.drawing.count("<svg") == 0
        assert all(len(line) <= 78 for line in picture.lines), picture.key
        assert not re.search(r"nan|inf\b", picture.drawing)


def test_pictures_follow_the_questions():
    assert "".join(p.question for p in gallery(healthy())).strip("W").strip("H").strip("K").strip("M") == ""


def test_nothing_is_drawn_of_nothing():
    bare = make_evidence(
        profile=make_profile(), measurements=(), geometry=None, device=None, settings=None, coverage=None, served=None
    )
    assert gallery(replace(healthy(), evidence=bare, findings=())) == []


@pytest.mark.parametrize("part", ["geometry", "device", "settings", "served", "plan", "coverage"])
def test_what_is_unknown_takes_away_its_own_pictures_alone(part):
    lacking = gallery(_with(replace(failing().evidence, **{part: None})))
    assert {"ttft", "tps", "cache"} <= {picture.key for picture in lacking}


@pytest.mark.parametrize("odd", [{"ttft": 0.0}, {"prompt_tokens": 0, "asked_prompt_tokens": 0}, {"output_tokens": 1}])
def test_numbers_at_the_edge_are_drawn_too(odd):
    samples = [replace(make_sample(i), **odd) for i in range(5)]
    assert gallery(_with(with_slo(make_evidence(), make_measurement(samples))))


@pytest.mark.parametrize("ttft_slo", [{"p100": 1.0}, {"p99.99": 1e6}, {"p50": 1e-9}])
def test_percentiles_and_limits_at_the_edge_are_drawn_too(ttft_slo):
    evidence = make_evidence()
    profile = replace(evidence.profile, slo=replace(evidence.profile.slo, ttft=ttft_slo))
    assert "latency-w110" in {p.key for p in gallery(_with(replace(evidence, profile=profile)))}


# ---------------------------------------------------------------------------------------------------------------- TTFT


def test_ttft_tells_over_the_slo_from_failed_and_within():
    good = [make_sample(i, ttft=0.1, prompt_tokens=100) for i in range(7)]
    slow = [make_sample(i, ttft=2.0, prompt_tokens=900) for i in range(7, 9)]
    bad = [make_sample(9, ttft=None, error="timeout", prompt_tokens=None)]
    picture = ttft.picture(_with(with_slo(make_evidence(), make_measurement([*good, *slow, *bad]))))
    assert picture.summary.startswith("3 of 10 requests under load miss p95 1.5 s or fail;")
    assert picture.drawing.count('class="miss"') == 2  # in the legend, and once for both
    assert picture.drawing.count('class="fail"') == 2


def test_ttft_shows_each_length_that_had_the_engine_to_itself():
    alone = {row["Prompt tokens"]: row for row in _rows(ttft.picture(healthy())) if row["Under"] == "alone"}
    assert list(alone) == ["32", "256", "1,024", "1,600", "3,000"]
    assert alone["3,000"]["TTFT p50"] == "95 ms"  # 20 ms + 25 us a token
    assert alone["32"]["Requests"] == "5"


def test_ttft_keeps_requests_of_one_length_together():
    lengths = [100] * 6 + [200] * 2 + [300, 400]
    samples = [make_sample(i, ttft=0.1, prompt_tokens=n) for i, n in enumerate(lengths)]
    rows = _rows(ttft.picture(_with(with_slo(make_evidence(), make_measurement(samples)))))
    loaded = [(row["Prompt tokens"], row["Requests"]) for row in rows if row["Under"] == "load"]
    assert loaded == [("100", "6"), ("200", "2"), ("300 to 400", "2")]


def test_ttft_without_a_model_has_no_limit():
    picture = ttft.picture(_with(make_evidence(geometry=None)))
    assert 'class="limit"' not in picture.drawing
    assert {row["Physical limit"] for row in _rows(picture)} == {""}


# ----------------------------------------------------------------------------------------------------------------- TPS


def test_tps_shows_the_ladder_and_the_traffic():
    rows = {row["Load"]: row for row in _rows(tps.picture(healthy()))}
    assert rows["decode-1x200"]["TPS p50"] == "142"  # 1 / (7 ms + 0.02 ms + 0.05 us x 1 x 200)
    assert rows["decode-16x1600"]["Total TPS"] == "1,860"  # 16 / (7 ms + 0.32 ms + 1.28 ms)
    assert rows["slo"]["Context"] == "the traffic's"
    assert rows["slo"]["TPS p50"] == "104"  # 1 / 9.6 ms


def test_no_picture_of_all_streams_where_no_load_was_steady_for_long_enough(monkeypatch):
    report = _with(make_evidence(measurements=make_evidence().loads("slo")))
    steady = tps.picture(report)
    rates = {"output_rate": None}
    monkeypatch.setattr(tps, "figures", lambda m: replace(figures(m), **rates))
    brief = tps.picture(report)
    assert "of all together" in steady.drawing
    assert "of all together" not in brief.drawing
    assert "requests in flight" in brief.drawing
    assert brief.height < steady.height


def test_tps_of_a_fleet_is_bounded_by_each_replica():
    one, six = healthy(), healthy()
    profile = six.evidence.profile
    fleet = replace(profile, deployment=replace(profile.deployment, replicas=6))
    six = replace(six, evidence=replace(six.evidence, profile=fleet))
    bound = [re.search(r'<path class="limit" d="([^"]*)"', tps.picture(r).drawing)[1] for r in (one, six)]
    ends = [float(way.rpartition(" ")[2]) for way in bound]
    assert ends[1] < ends[0]  # fewer streams on each: the limit lies higher


# ------------------------------------------------------------------------------------------------------------- latency


def test_latency_shows_the_interval_that_the_finding_has():
    (first, *_) = latency.pictures(healthy())
    finding = next(f for f in healthy().findings if f.rule == "W110")
    assert f"n={finding.measured.n}" in first.summary
    assert first.drawing.count('class="interval"') == 4  # legend, bar, two ends


def test_latency_leaves_the_picture_where_requests_failed():
    pictures = {p.key: p for p in latency.pictures(failing())}
    assert "10 failed" in pictures["latency-w110"].drawing
    assert [row["worst"] for row in _rows(pictures["latency-w110"])] == ["failed", "failed"]
    assert [row["worst"] for row in _rows(pictures["latency-w111"])] == ["failed"]


def test_latency_of_a_percentile_is_the_nearest_rank():
    samples = [make_sample(i, ttft=0.01 * (i + 1)) for i in range(100)]
    picture = latency.pictures(_with(with_slo(make_evidence(), make_measurement(samples))))[0]
    (row,) = _rows(picture)
    assert (row["n"], row["50 %"], row["95 %"], row["99 %"]) == ("100", "500 ms", "950 ms", "990 ms")
    assert row["worst"] == "1 s"


def test_tps_by_percentile_counts_from_the_fastest():
    samples = [make_sample(i, tpot=0.01 if i < 95 else 0.05) for i in range(100)]
    pictures = {p.key: p for p in latency.pictures(_with(with_slo(make_evidence(), make_measurement(samples))))}
    (row,) = _rows(pictures["latency-w111"])
    assert (row["95 %"], row["99 %"]) == ("100 tok/s", "20 tok/s")


# ------------------------------------------------------------------------------------------------------------ observed

LONG = Histogram(sum=90_000.0, count=100.0, buckets=((100.0, 0.0), (500.0, 50.0), (2000.0, 96.0), (5000.0, 100.0)))
SLOW = Histogram(sum=80.0, count=100.0, buckets=((0.5, 60.0), (1.0, 90.0), (2.5, 94.0)))
OBSERVED = Observed(source="Prometheus", window=86400.0, histograms={"prompt_len": LONG, "ttft": SLOW}, passive=True)


def _observed():
    return {p.key: p for p in observed.pictures(_with(make_evidence(observed=OBSERVED)))}


def test_observed_lengths_are_told_by_the_bounds_that_hold_them():
    picture = _observed()["observed-prompt-len"]
    assert picture.summary == (
        "Over 100 requests p50 is 100 to 500 tokens, p95 500 to 2,000 tokens, the mean 900 tokens. By Prometheus."
    )
    assert picture.drawing.count("<circle") == 5  # a key, and the bounds from the last empty to the first that has all
    assert [row["Share"] for row in _rows(picture)] == ["0 %", "50 %", "96 %", "100 %"]


def test_observed_times_beyond_the_last_bound_are_open():
    picture = _observed()["observed-ttft"]
    assert "p95 over 2.5 s" in picture.summary
    assert "p95 1.5 s" in picture.drawing  # the SLO's line


def test_the_audit_s_own_tries_on_a_page_are_no_requests_of_users():
    """Before the load an audit has sent a request itself; W107 asks for 200 too."""
    page = replace(OBSERVED, passive=False)
    assert observed.pictures(_with(make_evidence(observed=page))) == []
    many = replace(LONG, count=200.0, buckets=tuple((bound, 2 * n) for bound, n in LONG.buckets))
    page = replace(page, histograms={"prompt_len": many})
    assert len(observed.pictures(_with(make_evidence(observed=page)))) == 1


def test_nothing_observed_is_not_drawn():
    assert observed.pictures(healthy()) == []
    empty = replace(OBSERVED, histograms={"ttft": Histogram(sum=0.0, count=0.0, buckets=((1.0, 0.0), (2.0, 0.0)))})
    assert observed.pictures(_with(make_evidence(observed=empty))) == []


# -------------------------------------------------------------------------------------------------------- cache, memory


def test_cache_counts_preemptions_from_their_first_reading():
    picture = cache.picture(failing())
    assert picture.summary == (
        "At the target the KV cache is at most 100 % full, at most 12 requests run, at most 30 wait, 17 preemptions."
    )


def test_cache_without_a_metrics_page_is_not_drawn():
    quiet = with_slo(make_evidence(), make_measurement(gauges={}, counters={}))
    assert cache.picture(_with(quiet)) is None


def test_memory_parts_add_up_to_what_is_usable():
    rows = {row["Part"]: row for row in _rows(memory.picture(healthy()))}
    shares = [float(row["Share"].removesuffix(" %")) for part, row in rows.items() if part != "usable"]
    assert sum(shares) == pytest.approx(100, abs=2)
    assert rows["weights"]["Size"].startswith("14.9")  # 8,030,261,248 parameters in 16 bit are 14.96 GiB


def test_memory_marks_a_target_that_the_pool_does_not_hold():
    evidence = make_evidence()
    small = replace(evidence.served, kv_blocks=500, kv_tokens=8000)
    picture = memory.picture(_with(replace(evidence, served=small)))
    assert 'class="part over"' in picture.drawing
    assert 'class="part over"' not in memory.picture(healthy()).drawing


def test_memory_of_settings_that_an_engine_refuses_is_not_drawn():
    evidence = make_evidence(settings=make_settings(engine="trtllm", memory_fraction=None), served=None)
    assert memory.picture(_with(evidence)) is None or memory.picture(_with(evidence)).table.rows


# ------------------------------------------------------------------------------------------------------------ roofline


def test_roofline_is_flat_above_the_ridge_and_a_slope_below():
    rows = {row["Phase"]: row for row in _rows(roofline.picture(healthy()))}
    assert rows["prefill"]["Roof"] == "989 TFLOP/s"  # H100 SXM in 16 bit, above the ridge of 295 FLOP/byte
    assert rows["decode"]["Roof"].endswith(" TFLOP/s")
    assert float(rows["decode"]["Roof"].split()[0]) < 100


def test_roofline_without_ladders_says_not_measured():
    rows = _rows(roofline.picture(offline()))
    assert {row["Measured"] for row in rows} == {"not measured"}


# ------------------------------------------------------------------------------------------------------ ladder, parts


def _climbed(drawing):
    return drawing.count('class="rung got"')


def test_the_ladder_fills_as_many_rungs_as_were_climbed():
    item = CoverageItem(concept="ttft", rung="parses", names=("vllm:time_to_first_token_seconds",))
    report = _with(make_evidence(coverage=Coverage(items=(item,))))
    assert _climbed(ladder.picture(report).drawing) == 5  # proxy, named, valid, on the page, parses


def test_the_ladder_of_no_files_is_not_drawn():
    nothing = Coverage(items=(CoverageItem(concept="ttft", rung="missing"),))
    assert ladder.picture(_with(make_evidence(coverage=nothing))) is None
    assert ladder.picture(_with(make_evidence(coverage=replace(nothing, files=("panels.json",))))) is not None


def test_the_ladder_leaves_open_what_no_prometheus_was_asked():
    item = CoverageItem(concept="ttft", rung="alerted")
    unasked = _with(make_evidence(coverage=Coverage(items=(item,))))
    asked = _with(make_evidence(coverage=Coverage(items=(item,)), watch=Watch(url="http://prometheus:9090")))
    assert (_climbed(ladder.picture(unasked).drawing), _climbed(ladder.picture(asked).drawing)) == (6, 7)
    assert "No live Prometheus was asked" in ladder.picture(unasked).summary


def test_the_ladder_asks_first_for_what_question_four_asks():
    assert [row["What"] for row in _rows(ladder.picture(failing()))][:3] == ["TTFT", "TPS", "memory"]


def test_the_parts_of_a_step_are_those_of_the_finding():
    pictures = {p.key: p for p in parts.pictures(healthy())}
    assert set(pictures) == {"time-prefill", "time-decode"}
    told = next(f for f in healthy().findings if f.rule == "H202" and f.subject == "decode")
    measured = [n.name.removesuffix(", measured") for n in told.numbers if n.name.endswith(", measured")]
    names = {"KV cache" if name == "kv" else name for name in measured}
    assert {row["Part"] for row in _rows(pictures["time-decode"])} == names
