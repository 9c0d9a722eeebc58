"""The run folder: nothing measured is lost, nothing secret is written, and what comes back is equal to the last bit."""

import json
import math
import stat
from dataclasses import replace

import pytest

from auditor import store
from auditor.errors import UsageError
from auditor.evidence import METRICS_VERSION, Conflict, Coverage, CoverageItem, Evidence, Finding, Number, Report
from auditor.loading import Loaded, load_profile
from auditor.loads import Load, Plan, PlanNote, Shape
from auditor.measurement import ClientHealth, Histogram, Measurement, MetricsPage, Sample, Served, Snapshot
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Experts, Geometry, Layers
from auditor.theory.settings import Settings

SECRET = "very-secret-key"


@pytest.fixture
def loaded(tmp_path) -> Loaded:
    path = tmp_path / "p.yaml"
    path.write_text(
        "version: 1\nname: t\nendpoint: {url: 'http://127.0.0.1:8000/v1', api_key_env: K, extra_body: {top_p: 0.1}}\n"
        "deployment: {launch: 'vllm serve m --api-key very-secret-key', speculative: {method: eagle}}\n"
    )
    return load_profile(path, {"K": SECRET})


def shape(cls: str = "rag") -> Shape:
    return Shape(cls=cls, prompt_tokens=30, output_tokens=4, prefix=1, prefix_tokens=10)


def sample(index: int, load: str = "slo", **facts) -> Sample:
    facts = {
        "start": index / 7,
        "ttft": 0.1 + index / 3,
        "e2e": 1.0,
        "closed": 1.1,
        "arrivals": (0.1, 1 / 3, 2 / 3),
        **facts,
    }
    return Sample(load=load, index=index, cls="rag", asked_prompt_tokens=30, asked_output_tokens=4, **facts)


SLO = Load(id="slo", purpose="slo", concurrency=2, shapes=(shape(), shape()), warmup=(shape(),), why="SLOs")
LADDER = Load(id="prefill/1k", purpose="prefill", concurrency=1, shapes=(shape(),), prompt_tokens=1024)
OPTIONS = {"only": ["K", "M"], "today": None}
MEASURED = (
    Measurement(
        load=SLO,
        samples=(sample(0), sample(1, error="http_4xx", detail=f"bad key {SECRET}", ttft=None, e2e=None, arrivals=())),
        warmup=(sample(0, ttft=9.5),),
        started=0.25,
        duration=3.5,
        snapshots=(
            Snapshot(
                at=0,
                phase="before",
                values={"running": 3, "kv_usage": 0.1},
                histograms={"ttft": Histogram(sum=1, count=2, buckets=((0.1, 1), (math.inf, 2)))},
            ),
        ),
        client=ClientHealth(loop_lag_p99=0.001, peak_inflight=2),
    ),
    Measurement(load=LADDER, samples=(sample(0, load="prefill/1k"),), stopped="interrupted"),
)


def evidence(loaded: Loaded) -> Evidence:
    return Evidence(
        profile=loaded.profile,
        today="2026-06-01",
        lines=loaded.lines,
        geometry=Geometry(
            name="m",
            architecture="a",
            layers=(Layers(kind="sliding", count=2, kv_heads=1, qk_head_dim=8, v_head_dim=8, window=16),),
            hidden_size=8,
            vocab_size=9,
            attention_heads=2,
            parameters=10,
            active_parameters=9,
            embedding_parameters=3,
            tied_embeddings=True,
            experts=Experts(count=2, per_token=1, layers=1, parameters=5),
        ),
        device=Device(
            key="d",
            name="D",
            vendor="v",
            kind="gpu",
            memory_bytes=1,
            usable_bytes=None,
            bandwidth=1,
            flops={"bf16": 1e15},
        ),
        settings=Settings(engine="vllm", kv_bytes=34 / 32),
        setting_sources={"kv_bytes": "declared"},
        served=Served(
            engine="vllm",
            api="chat",
            round_trip=1 / 3,
            pages=(MetricsPage(url="http://h/metrics", types={"a": "counter"}, buckets={"b": (0.1, math.inf)}),),
        ),
        plan=Plan(loads=(SLO, LADDER), requests=4, tokens=100, seconds=1.5, notes=(PlanNote("n", ("W110",)),)),
        measurements=MEASURED,
        coverage=Coverage(items=(CoverageItem(concept="ttft", rung="valid"),), offered={"ttft": ("a",)}),
        conflicts=(Conflict("deployment.count", "1", "p.yaml:3", "2", "launch"),),
        flags={"count": "--count"},
        metric_names={"ttft": ("x", "y")},
        problems=(f"key {SECRET} was refused",),
    )


def report(judged: Evidence) -> Report:
    number = Number(name="TTFT p95", value=math.inf, unit="s", provenance="measured", low=0.1)
    finding = Finding(rule="W110", status="fail", title="t", why="w", measured=number)
    return Report(
        schema_version=1,
        tool_version="0",
        name="t",
        date="2026-06-01",
        verdict="NOT READY",
        verdict_line="NOT READY",
        exit_code=1,
        questions=(),
        findings=(finding,),
        evidence=judged,
    )


def record(folder, loaded) -> Evidence:
    """A whole run, as the pipeline records it."""
    seen = evidence(loaded)
    begun = replace(seen, measurements=(), plan=None, served=None)
    with store.recording(folder, loaded, begun, {"only": ("K", "M"), "today": None}) as keep:
        keep.update(replace(seen, measurements=()))
        for measurement in MEASURED:
            for one in measurement.samples:
                keep.sample(one)
            keep.measurement(measurement)
        judged = keep.redact(seen)
        keep.finish(judged, report(judged))
        assert keep.failure is None
    return judged


# ---------------------------------------------------------------------------------------------------------- round trip


def test_a_saved_run_comes_back_equal_to_the_last_bit(tmp_path, loaded):
    judged = record(tmp_path / "run", loaded)
    again = store.load(tmp_path / "run")
    assert again == judged
    assert repr(again) == repr(judged)
    assert again.measurements[0].samples[0].ttft == 0.1
    assert again.measurements[0].samples[0].arrivals[1] == 1 / 3
    assert again.measurements[0].snapshots[0].histograms["ttft"].buckets[-1] == (math.inf, 2.0)


@pytest.mark.parametrize(("saved", "read"), [(None, 1), (1, 1), (2, 2)])
def test_a_run_says_what_its_numbers_mean(tmp_path, loaded, saved, read):
    """Runs from before that was written down mean what the first version means, whatever this program's is."""
    record(tmp_path / "run", loaded)
    path = tmp_path / "run" / "evidence.json"
    data = json.loads(path.read_text())
    assert data.pop("metrics_version") == METRICS_VERSION
    path.write_text(json.dumps(data if saved is None else {**data, "metrics_version": saved}))
    assert store.load(tmp_path / "run").metrics_version == read


def test_a_run_that_is_not_saved_is_judged_on_the_same_evidence(tmp_path, loaded):
    seen = evidence(loaded)
    with store.recording(None, loaded, seen) as keep:
        keep.sample(MEASURED[0].samples[0])
        keep.measurement(MEASURED[0])
        assert repr(keep.redact(seen)) == repr(record(tmp_path / "run", loaded))
        keep.finish(seen, report(seen))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.yaml", "run"]


def test_no_secret_reaches_the_folder(tmp_path, loaded):
    record(tmp_path / "run", loaded)
    files = sorted((tmp_path / "run").iterdir())
    assert [file.name for file in files] == [
        "evidence.json",
        "measurements.jsonl",
        "profile.yaml",
        "report.json",
        "run.json",
        "samples-00.jsonl",
        "samples-01.jsonl",
    ]
    assert not [file.name for file in files if SECRET in file.read_text()]
    assert "--api-key ***" in (tmp_path / "run" / "profile.yaml").read_text()
    assert "bad key ***" in (tmp_path / "run" / "samples-00.jsonl").read_text()


def test_a_secret_is_gone_from_a_live_sample_too(tmp_path, loaded):
    with store.recording(tmp_path / "run", loaded, evidence(loaded)) as keep:
        keep.sample(MEASURED[0].samples[1])
        assert SECRET not in (tmp_path / "run" / "samples-00.jsonl").read_text()


def test_files_and_folder_are_the_users_own(tmp_path, loaded):
    record(tmp_path / "a" / "run", loaded)
    assert stat.S_IMODE((tmp_path / "a" / "run").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "a" / "run").iterdir()} == {0o600}


def test_every_file_is_strict_json(tmp_path, loaded):
    record(tmp_path / "run", loaded)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for file in (tmp_path / "run").glob("*.json*"):
        texts = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
        for text in texts:
            json.loads(text, parse_constant=refuse)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts == {
        "schema_version": 1,
        "tool_version": facts["tool_version"],
        "complete": True,
        "requests": [3, 1],
        "options": OPTIONS,
    }
    assert store.load_options(tmp_path / "run") == OPTIONS
    saved = json.loads((tmp_path / "run" / "report.json").read_text())
    assert saved["findings"][0]["measured"]["value"] == "Infinity"
    assert "evidence" not in saved


def test_a_run_without_options_has_none(tmp_path, loaded):
    with store.recording(tmp_path / "run", loaded, evidence(loaded)):
        assert store.load_options(tmp_path / "run") == {}
    (tmp_path / "run" / "run.json").write_text('{"schema_version": 1, "options": 5}')
    assert store.load_options(tmp_path / "run") == {}


def test_nan_survives():
    assert store.plain((math.nan, -math.inf, 1.5)) == ["NaN", "-Infinity", 1.5]


# ------------------------------------------------------------------------------------------------------------ cut off


def test_a_run_that_was_cut_off_is_judged_with_what_was_saved(tmp_path, loaded):
    seen = evidence(loaded)
    with store.recording(tmp_path / "run", loaded, seen) as keep:
        keep.sample(MEASURED[0].samples[0])
        keep.measurement(MEASURED[0])
        keep.sample(sample(0, load="prefill/1k", start=2.0))
        folder = tmp_path / "run"
        with (folder / "samples-01.jsonl").open("a") as file:
            file.write('{"load": "pre')
        again = store.load(folder)
    assert again.problems[-1] == "the saved run was cut off before its end; judged with what was saved"
    assert [m.load for m in again.measurements] == [SLO, LADDER]
    assert again.measurements[0].warmup == MEASURED[0].warmup
    assert len(again.measurements[1].samples) == 1
    assert again.measurements[1].stopped == "cut off"
    assert again.measurements[1].duration == pytest.approx(3.1)


def test_what_was_sent_of_the_reserve_before_the_cut_is_kept(tmp_path, loaded):
    seen = evidence(loaded)
    again = replace(SLO, id="slo-2")
    assert seen.plan is not None
    with store.recording(tmp_path / "run", loaded, replace(seen, plan=replace(seen.plan, reserve=(again,)))) as keep:
        keep.sample(sample(0, load="slo-2", start=2.0))
        assert [m.load for m in store.load(tmp_path / "run").measurements] == [again]


def test_requests_of_a_load_that_no_saved_plan_knows_are_left_out(tmp_path, loaded):
    with store.recording(tmp_path / "run", loaded, replace(evidence(loaded), plan=None)) as keep:
        keep.sample(sample(0))
        keep.sample(sample(1))
        assert store.load(tmp_path / "run").measurements == ()
        assert len((tmp_path / "run" / "samples-00.jsonl").read_text().splitlines()) == 2


def test_a_run_without_a_request_is_judged(tmp_path, loaded):
    with store.recording(tmp_path / "run", loaded, evidence(loaded)):
        pass
    assert store.load(tmp_path / "run").measurements == ()


class FullDisk:
    """Stands for a file on a disk that fills up after some writes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def fsync(self, number: int) -> None:
        self.room -= 1
        if self.room < 0:
            raise OSError(28, "No space left on device")


def test_a_full_disk_stops_the_saving_and_not_the_audit(tmp_path, loaded, monkeypatch):
    seen = evidence(loaded)
    with store.recording(tmp_path / "run", loaded, seen) as keep:
        keep.sample(MEASURED[0].samples[0])
        monkeypatch.setattr("os.fsync", FullDisk(0).fsync)
        keep.measurement(MEASURED[0])
        assert keep.failure == f"{tmp_path / 'run'}: the run cannot be saved (No space left on device)"
        keep.sample(MEASURED[0].samples[1])
        judged = keep.redact(seen)
        keep.finish(judged, report(judged))
        assert keep.failure is not None
    assert store.load(tmp_path / "run").problems[-1].startswith("the saved run was cut off")
    assert not list((tmp_path / "run").glob("*.part"))


def test_a_disk_with_room_again_gets_the_whole_run(tmp_path, loaded, monkeypatch):
    seen = evidence(loaded)
    with store.recording(tmp_path / "run", loaded, seen) as keep:
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", FullDisk(0).fsync)
            keep.measurement(MEASURED[0])
        judged = keep.redact(seen)
        keep.finish(judged, report(judged))
        assert keep.failure is None
    assert store.load(tmp_path / "run") == judged


def test_a_sample_that_cannot_be_written_stops_the_saving(tmp_path, loaded, monkeypatch):
    with store.recording(tmp_path / "run", loaded, evidence(loaded)) as keep:
        monkeypatch.setattr(
            store, "_open", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        )
        keep.sample(sample(0))
        assert keep.failure is not None


# ------------------------------------------------------------------------------------------------------------- errors


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path, loaded):
    record(tmp_path / "run", loaded)
    with (
        pytest.raises(UsageError, match="holds a saved run already; choose another folder"),
        store.recording(tmp_path / "run", loaded, evidence(loaded)),
    ):
        pass


def test_a_run_that_failed_before_its_first_request_may_be_tried_again_in_the_same_folder(tmp_path, loaded):
    with pytest.raises(ConnectionError), store.recording(tmp_path / "run", loaded, evidence(loaded)):
        raise ConnectionError
    record(tmp_path / "run", loaded)
    assert store.load(tmp_path / "run").measurements


def test_a_folder_that_cannot_be_made_or_written_is_known_before_anything_is_measured(tmp_path, loaded, monkeypatch):
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(UsageError, match="cannot be made"),
        store.recording(tmp_path / "file", loaded, evidence(loaded)),
    ):
        pass
    monkeypatch.setattr("os.fsync", FullDisk(0).fsync)
    message = r"the run cannot be saved \(No space left on device\); choose another folder$"
    with pytest.raises(UsageError, match=message), store.recording(tmp_path / "r", loaded, evidence(loaded)):
        pass


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("run.json", None, r"holds no saved run \(no run.json\)"),
        ("run.json", "{", "run.json: is damaged: not JSON"),
        ("run.json", "[]", "run.json: is damaged: it names no format version"),
        ("run.json", '{"schema_version": 2}', r"a newer serving-audit \(format 2, this program reads up to 1\)"),
        ("evidence.json", None, "evidence.json: cannot be read"),
        ("evidence.json", "", "evidence.json: is damaged: not JSON"),
        ("evidence.json", "[" * 100_000, "evidence.json: is damaged: not JSON"),
        ("evidence.json", "{}", "evidence.json: is damaged: 2 validation errors"),
        ("measurements.jsonl", "x\n", "measurements.jsonl: is damaged: line 1 is not JSON"),
        (
            "measurements.jsonl",
            f'{{"duration": {10**18}}}\n',
            "is damaged: line 1: the number 1000000000000000000 is too",
        ),
        ("measurements.jsonl", "{}\n", "measurements.jsonl: is damaged: "),
        ("samples-00.jsonl", "[]\n", "samples-00.jsonl: is damaged: "),
    ],
)
def test_a_damaged_or_newer_run_is_refused_in_one_line(tmp_path, loaded, name, text, message):
    record(tmp_path / "run", loaded)
    file = tmp_path / "run" / name
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        store.load(tmp_path / "run")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["measurements.jsonl", "samples-00.jsonl"])
@pytest.mark.parametrize("older", [True, False])
@pytest.mark.parametrize("left", [None, "", "cut"])
def test_a_finished_run_that_lost_requests_is_refused(tmp_path, loaded, name, older, left):
    record(tmp_path / "run", loaded)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["requests"] == [len(m.samples) + len(m.warmup) for m in MEASURED]
    if older:
        del facts["requests"]
        (tmp_path / "run" / "run.json").write_text(json.dumps(facts))
    file = tmp_path / "run" / name
    text = file.read_text()
    if left is None:
        file.unlink()
        with pytest.raises(UsageError, match=rf"is damaged: {name} is missing; copy it whole once more$"):
            store.load(tmp_path / "run")
    elif not older:
        file.write_text(left and text[:-2])
        with pytest.raises(
            UsageError, match=r"is damaged: a part of its requests is missing; copy it whole once more$"
        ):
            store.load(tmp_path / "run")


@pytest.mark.parametrize("wrong", ['"ttft":"NaN"', '"e2e":1e300', '"arrivals":[0.1,"Infinity"]', '"start":-1e12'])
def test_times_that_no_clock_gives_are_damage(tmp_path, loaded, wrong):
    record(tmp_path / "run", loaded)
    start = "" if "start" in wrong else '"start":0,'
    line = f'{{"load":"slo","index":0,"cls":"a",{start}"asked_prompt_tokens":1,"asked_output_tokens":1,{wrong}}}'
    (tmp_path / "run" / "samples-00.jsonl").write_text(line + "\n")
    with pytest.raises(UsageError, match="is damaged: request 0 has a time that no clock gives"):
        store.load(tmp_path / "run")


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="there is no such folder; `audit run --save DIR` writes one"):
        store.load(tmp_path / "none")


def test_a_file_of_requests_that_is_a_folder(tmp_path, loaded):
    record(tmp_path / "run", loaded)
    (tmp_path / "run" / "samples-00.jsonl").unlink()
    (tmp_path / "run" / "samples-00.jsonl").mkdir()
    with pytest.raises(UsageError, match=r"samples-00.jsonl: cannot be read"):
        store.load(tmp_path / "run")
