"""Any query that parses is read for flaws without an error, and a title changes nothing but what is said of titles."""

from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.measurement import MetricsPage
from auditor.monitoring.flaws import facts, flaws
from auditor.monitoring.reading import Asked
from auditor.monitoring.standing import Place
from auditor.watch import Query

NAMES = [
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:time_to_first_token_seconds_sum",
    "vllm:time_to_first_token_seconds_count",
    "vllm:kv_cache_usage_perc",
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm_kv_cache_usage_perc",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "gpustack:worker_node_gram_utilization_rate",
    "job:recorded",
    "unknown_total",
]
PAGE = MetricsPage(
    url="u", types=dict.fromkeys(NAMES[:6], "gauge"), ranks={"engine": ("0", "1"), "tp_rank": ("0", "1")}
)
PLACES = [Place("generic", None, ()), Place("vllm", "0.18.0", ()), Place("vllm", "0.18.0", (PAGE,))]
RECORDINGS = {"job:recorded": "sum by (job) (vllm:kv_cache_usage_perc) + job:recorded"}

names = st.sampled_from(NAMES)
numbers = st.sampled_from(["0", "1", "0.9", "90", "1e-300", "-1", "NaN", "Inf", "(2 - 2)"])
leaves = st.one_of(
    names,
    st.builds("{}{{pod={}}}".format, names, st.sampled_from(['"a"', '"b"'])),
    st.builds("{}({}[{}])".format, st.sampled_from(["rate", "increase", "max_over_time"]), names, st.just("5m")),
    st.builds("{} offset 1h".format, names),
)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "/", ">", "<=", "== bool", "and", "or", "unless"])
    return st.one_of(
        st.builds(
            "{}{}({})".format,
            st.sampled_from(["sum", "max", "avg", "count"]),
            st.sampled_from(["", " by (pod, le) "]),
            inner,
        ),
        st.builds("histogram_quantile({}, {})".format, numbers, inner),
        st.builds("({}) {} ({})".format, inner, operators, inner),
        st.builds("({}) {} {}".format, inner, st.sampled_from(["*", "/", ">", "<", ">=", "<="]), numbers),
        st.builds("{} < ({})".format, numbers, inner),
        st.builds("absent({})".format, inner),
        st.builds("-({})".format, inner),
    )


queries = st.recursive(leaves, grown, max_leaves=6)
titles = st.sampled_from(["", "TTFT", "TTFT p99", "Throughput (tok/s)", "KV cache usage", "p50 / p95", "$model p95"])
units = st.sampled_from(["", "percent", "percentunit", "s", "ms", "bytes"])


@given(st.lists(queries, min_size=1, max_size=3), titles, units, st.sampled_from(PLACES), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_query_is_read_and_titles_say_nothing_of_the_rest(texts, title, unit, place, is_alert):
    name = "A" if is_alert else None
    drawn = [Asked(text=t, where="d: p", raw=t, unit=unit, title=title, alert=name) for t in texts]
    plain = [Asked(text=t, where="d: p", raw=t, unit=unit, alert=name) for t in texts]
    found = flaws(drawn, RECORDINGS, place)
    assert [flaw for flaw in found if flaw.kind != "title"] == list(flaws(plain, RECORDINGS, place))
    assert all(flaw.note and flaw.names and flaw.where == "d: p" for flaw in found)
    for one in drawn:
        told = facts(Query(text=one.text, where=one.where), one, RECORDINGS, place)
        assert all(window == 300.0 for window in told.windows)


@given(queries)
@settings(max_examples=100, deadline=None)
def test_what_is_written_instead_has_no_flaw_of_its_own_kind(text):
    place = PLACES[1]
    for flaw in flaws([Asked(text=text, where="d: p", raw=text)], {}, place):
        if flaw.instead is not None and flaw.kind in ("lifetime", "summed_ratio", "mixed_tokens", "average_only"):
            again = flaws([Asked(text=flaw.instead, where="d: p", raw=flaw.instead)], {}, place)
            assert flaw.kind not in {other.kind for other in again}
