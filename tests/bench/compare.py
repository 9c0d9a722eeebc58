"""Load generators side by side on a server that knows when it sent what: errors, counts, cost. Run by hand.

    python -m tests.bench.compare --server './truth --port {port}' --tool audit=audit --tool vllm=venv/bin/vllm

The server streams chat and text completions and takes the flags --model NAME, --ttft-base-us, --itl-us, and, for the
traps, --fail-every N, --error-in-stream N, --drop-every N, --stall-every N, --early-stop-every N, --tokens-per-chunk N.
It counts a word of a prompt as a token, and answers
    POST /truth/reset
    GET /truth           {"first_token_lateness": {"p99": us}}: how late it was itself
    GET /truth/requests  a JSON line a request, in order of arrival by its id: id, outcome ("ok", "early_stop", else
                         something that went wrong), ttft_us and e2e_us since the request's last byte, prompt_tokens,
                         sent_tokens
Run it on a quiet machine, and give each side its own core and a realtime priority:
`--server 'chrt -f 40 taskset -c 0 ...' --client 'taskset -c 1 chrt -r 30'`.

A tool's requests need not say which of the server's they are, so both are sorted, and an error is the difference of two
times of the same rank: what a reader of percentiles gets wrong. A tool's CPU seconds are all its processes', those per
million tokens without what a run of five requests costs (the cheaper of two, as the first reads files from disk); its
memory is their proportional set size, summed.
"""

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.peers import PEERS, Job, Said, Seen

MODEL, PROMPT, OUTPUT = "bench", 128, 64
TIMING = ["--model", MODEL, "--ttft-base-us", "100000", "--itl-us", "20000"]
TRAPS = {
    "half fail (500)": ["--fail-every", "2"],
    "error in a 200 stream": ["--error-in-stream", "2"],
    "cut off": ["--drop-every", "2"],
    "stands still": ["--stall-every", "2"],
    "four tokens an event": ["--tokens-per-chunk", "4"],
    "ends early": ["--early-stop-every", "2"],
}
WORDS = ["time", "year", "people", "way", "day", "thing", "world", "life", "hand", "part", "child", "eye", "place"]
LOADS = "| tool | streams | TTFT error p50 / p99 ms | TPOT error p50 / p99 ms | tokens right, of prompts / of replies "
LOADS += "| CPU s per 1M tokens | fixed CPU s | peak MB | wall s | server late p99 ms |"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a program took: exit code (None: it had to be ended), CPU s, MB at most, s."""

    exit: int | None
    cpu: float
    memory: float
    wall: float


def _write_inputs(folder: Path, requests: int) -> None:
    """Prompts that share no beginning, as the tools read them, and a tokenizer that counts words as the server does."""
    chance = random.Random(0)
    texts = [f"{number:06x} " + " ".join(chance.choices(WORDS, k=PROMPT - 1)) for number in range(requests)]
    with (folder / "prompts.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"prompt": text, "text": text}) + "\n" for text in texts)
    reply = " ".join(["yes"] * OUTPUT)
    talks = [{"conversations": [{"from": "human", "value": t}, {"from": "gpt", "value": reply}]} for t in texts]
    (folder / "talks.json").write_text(json.dumps(talks), encoding="utf-8")
    (folder / "tokenizer").mkdir()
    model = {"type": "WordLevel", "vocab": {"[UNK]": 0, **{w: i for i, w in enumerate(WORDS, 1)}}, "unk_token": "[UNK]"}
    parts: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": model,
    }
    for name in ("truncation", "padding", "normalizer", "post_processor", "decoder"):
        parts[name] = None
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "eos_token": "[UNK]"}
    for name, data in (("tokenizer", parts), ("tokenizer_config", settings), ("config", {"model_type": "gpt2"})):
        (folder / "tokenizer" / f"{name}.json").write_text(json.dumps(data), encoding="utf-8")


def _descendants(root: int) -> dict[int, float]:
    """CPU seconds of a process and of all that it started, by id."""
    parents, cpu = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
        cpu[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    family = {root}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return {pid: cpu[pid] for pid in family if pid in cpu}


def _megabytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _measure(command: list[str], log: Path, limit: float) -> Cost:
    """Run a program and everything it starts; end all of it after `limit` seconds."""
    begin, memory = time.monotonic(), 0.0
    cpu: dict[int, float] = {}
    with log.open("w") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=log.parent)
    while True:
        done, status, usage = os.wait4(process.pid, os.WNOHANG)
        if done:
            break
        seen = _descendants(process.pid)
        cpu |= seen
        memory = max(memory, sum(map(_megabytes, seen)))
        if time.monotonic() - begin > limit:
            for pid in seen:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.25)
    wall = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    spent = max(sum(cpu.values()), usage.ru_utime + usage.ru_stime)
    return Cost(None if wall > limit else process.returncode, spent, max(memory, usage.ru_maxrss / 1024), wall)


def _ask(url: str, path: str, data: bytes | None = None) -> str:
    with urllib.request.urlopen(url + path, data=data, timeout=20) as reply:
        text: str = reply.read().decode()
    return text


@contextmanager
def _server(command: str, port: int, flags: list[str]) -> Iterator[str]:
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [*shlex.split(command.format(port=port)), *TIMING, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(50):
            try:
                _ask(url, "/truth")
                break
            except OSError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def _run(args: argparse.Namespace, tool: str, url: str, streams: int, requests: int, trap: bool) -> tuple[Any, ...]:
    """(cost, what the tool said or None, the server's records of its measured requests)."""
    folder = Path(tempfile.mkdtemp(prefix=f"{tool}-{streams}-", dir=args.work))
    _write_inputs(folder, requests)
    limit, patience = (args.trap_limit, 10) if trap else (args.limit, 120)
    job = Job(url, MODEL, streams, requests, PROMPT, OUTPUT, patience, folder)
    ask, read = PEERS[tool]
    _ask(url, "/truth/reset", b"")
    command = [*shlex.split(args.client), *shlex.split(args.tool[tool]), *ask(job)]
    cost = _measure(command, folder / "log.txt", limit)
    records = sorted(map(json.loads, _ask(url, "/truth/requests").splitlines()), key=lambda record: record["id"])
    try:
        said = read(job)
    except (OSError, ValueError, LookupError, TypeError) as error:
        print(f"{tool}, {streams} streams: no result ({error!r}, exit {cost.exit}): {folder}", file=sys.stderr)
        said = None
    return cost, said, records[-requests:]


def _good(records: list[Any]) -> list[Seen]:
    """What the server knows of the requests that went well."""
    return [
        Seen(r["ttft_us"] / 1e3, (r["e2e_us"] - r["ttft_us"]) / 1e3 / (r["sent_tokens"] - 1), r["prompt_tokens"], sent)
        for r in records
        if r["outcome"] in ("ok", "early_stop") and (sent := r["sent_tokens"]) > 1
    ]


def _errors(told: list[float | None], known: list[float | None]) -> str:
    """Differences of times of the same rank, in ms: median and 99th percentile."""
    said, true = (sorted(time for time in times if time is not None) for times in (told, known))
    off = sorted(abs(value - true[index * len(true) // len(said)]) for index, value in enumerate(said))
    return " / ".join(f"{off[int(share * len(off))]:.2f}" for share in (0.5, 0.99)) if off else "-"


def _row(tool: str, streams: int, cost: Cost, fixed: float, said: Said | None, true: list[Seen], late: float) -> str:
    cells = [tool, str(streams)]
    if said and true:
        good = said.good
        cells += [_errors([s.ttft for s in good], [t.ttft for t in true])]
        cells += [_errors([s.tpot for s in good], [t.tpot for t in true])]
        right = [sum(s.prompt == PROMPT for s in good), sum(s.output == OUTPUT for s in good)]
        cells += [" / ".join(f"{count}" for count in right) + f" of {len(true)}"]
    else:
        cells += ["did not end" if cost.exit is None else f"no result, exit {cost.exit}", "-", "-"]
    tokens = sum(t.output for t in true)
    cells += [f"{1e6 * max(cost.cpu - fixed, 0) / tokens:.1f}" if streams > 1 and tokens else "-"]
    cells += [f"{fixed:.1f}", f"{cost.memory:.0f}", f"{cost.wall:.1f}", f"{late:.2f}"]
    return "| " + " | ".join(cells) + " |"


def _loads(args: argparse.Namespace, tool: str) -> Iterator[str]:
    with _server(args.server, args.port, []) as url:
        fixed = min(_run(args, tool, url, 1, 5, trap=False)[0].cpu for _ in range(2))
        for streams in args.streams:
            cost, said, records = _run(args, tool, url, streams, max(8, 3 * streams), trap=False)
            late = json.loads(_ask(url, "/truth"))["first_token_lateness"]["p99"] / 1e3
            yield _row(tool, streams, cost, fixed, said, _good(records), late)


def _caught(args: argparse.Namespace, tool: str, trap: str) -> str:
    """One trap: successes and their tokens as the tool says and as the server knows."""
    with _server(args.server, args.port, TRAPS[trap]) as url:
        cost, said, records = _run(args, tool, url, 8, 16, trap=True)
    if cost.exit is None:
        return "hangs"
    if said is None:
        return f"no result, exit {cost.exit}"
    true = _good(records)
    pairs = {
        "ok": (len(said.good), len(true)),
        "failed": (said.failed, len(records) - len(true)),
        "tokens": (sum(s.output for s in said.good), sum(t.output for t in true)),
    }
    wrong = [f"{name} {said} not {true}" for name, (said, true) in pairs.items() if said != true]
    return f"{', '.join(wrong) or 'right'}, exit {cost.exit}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="how to start the server; {port} is filled in")
    parser.add_argument("--tool", required=True, action="append", metavar="NAME=COMMAND", help=", ".join(PEERS))
    parser.add_argument("--client", default="", help="put before each tool's command")
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 32, 256, 1000], help="none: no loads")
    parser.add_argument("--traps", nargs="*", default=list(TRAPS), choices=[*TRAPS, []], help="none: no traps")
    parser.add_argument("--limit", type=float, default=150, help="seconds that a load may take")
    parser.add_argument("--trap-limit", type=float, default=90, help="seconds after which a tool hangs")
    parser.add_argument("--port", type=int, default=8931)
    parser.add_argument("--work", type=Path, help="folder for what the tools write (default: a temporary one)")
    args = parser.parse_args()
    args.tool = dict(tool.split("=", 1) for tool in args.tool)
    if unknown := set(args.tool) - set(PEERS):
        parser.error(f"--tool: {', '.join(sorted(unknown))} is none of {', '.join(PEERS)}")
    args.work = (args.work or Path(tempfile.mkdtemp(prefix="compare-"))).absolute()
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def main() -> None:
    """Print a table of loads and one of traps, row by row."""
    args = _arguments()
    if args.streams:
        print(LOADS, "|---" * (LOADS.count("|") - 1) + "|", sep="\n", flush=True)
        for tool in args.tool:
            for row in _loads(args, tool):
                print(row, flush=True)
        print()
    if args.traps:
        print(f"| tool | {' | '.join(args.traps)} |", "|---" * (len(args.traps) + 1) + "|", sep="\n", flush=True)
        for tool in args.tool:
            print(f"| {tool} | {' | '.join(_caught(args, tool, trap) for trap in args.traps)} |", flush=True)


if __name__ == "__main__":
    main()
