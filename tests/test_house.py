"""House rules: sizes, pages, help texts, light imports. A rule that is not checked is a wish."""

import ast
import importlib
import os
import re
import statistics
import subprocess
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from readme import RULES, filled, index

import auditor
from auditor import errors
from auditor.cli.app import COMMANDS
from auditor.cli.exits import EXITS
from auditor.evidence import Evidence
from auditor.loading import load_profile

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for room in ("auditor", "checks") for path in (ROOT / room).rglob("*.py"))
TEXTS = [
    *SOURCES,
    *sorted((ROOT / "tests").rglob("*.py")),
    *sorted((ROOT / "checks").rglob("*.md")),
    *sorted((ROOT / "profiles").rglob("*.yaml")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "constraints.txt", "pyproject.toml")),
    ROOT / ".ci" / "run",
]
HEADINGS = ["Question", "Why", "Looks at", "Judges", "Cannot see", "Fix"]
README = (ROOT / "README.md").read_text(encoding="utf-8")

# Written in pieces, so that this file does not contain them.
FORBIDDEN = (
    "../sh" + "ared",
    "/wo" + "rk/",
    "/tmp/" + "plan",
    "/tmp/" + "venv",
    "pypi" + ".org",
    "index" + "-url",
    "artifact" + "ory",
)


def _functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _lines(function):
    """Lines of a function without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def _name(path):
    return str(path.relative_to(ROOT))


def _python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


# --------------------------------------------------------------------------------------------------------------- sizes


def test_files_have_at_most_400_lines():
    long = {_name(path): count for path in SOURCES if (count := len(path.read_text("utf-8").splitlines())) > 400}
    assert not long


def test_functions_have_at_most_60_lines():
    long = {f"{_name(p)}:{f.name}": _lines(f) for p in SOURCES for f in _functions(p) if _lines(f) > 60}
    assert not long


def test_the_median_function_has_at_most_10_lines():
    assert statistics.median(_lines(f) for path in SOURCES for f in _functions(path)) <= 10


def test_rooms_have_empty_init_files():
    """All but the public surface, and `loading`, which is one module in several files."""
    full = (ROOT / "auditor" / "__init__.py", ROOT / "auditor" / "loading" / "__init__.py")
    inits = [path for path in SOURCES if path.name == "__init__.py" and path not in full]
    assert ROOT / "checks" / "__init__.py" in inits
    assert not [_name(path) for path in inits if path.read_text("utf-8").strip()]


def _public(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")]


def test_every_module_and_public_function_says_what_it_is():
    """The page of a rule says what its function does."""
    written = [path for path in SOURCES if path.read_text(encoding="utf-8").strip()]
    bare = [_name(path) for path in written if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    silent = [(path, node) for path in written for node in _public(path) if not ast.get_docstring(node)]
    bare += [f"{_name(path)}:{node.name}" for path, node in silent if not re.match(r"[a-z]\d{3}_", node.name)]
    assert not bare


# -------------------------------------------------------------------------------------------------------------- public


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_all_is_sorted_and_true(path):
    if path.name == "__main__.py" or "__all__" not in path.read_text(encoding="utf-8"):
        return
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    assert module.__all__ == sorted(module.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_importing_auditor_is_cheap():
    loaded = _python("import sys, auditor; print(sorted(m for m in sys.modules if m.startswith('auditor')))")
    assert loaded.strip() == "['auditor']"


def test_the_version_is_the_package_s():
    assert re.search(
        rf'^version = "{re.escape(auditor.__version__)}"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        auditor.nonsense


# ---------------------------------------------------------------------------------------------------------------- help


def test_help_loads_nothing_heavy():
    heavy = ("httpx", "yaml", "pydantic", "rich", "asyncio", "auditor.run", "auditor.loading")
    code = (
        "import sys\nfrom auditor.cli.app import program\n"
        "try: program(['--help'])\nexcept SystemExit: pass\n"
        f"print('LOADED', [m for m in {heavy!r} if m in sys.modules])"
    )
    assert _python(code).splitlines()[-1] == "LOADED []"


@pytest.mark.slow
def test_help_costs_at_most_three_times_typer():
    def cpu(arguments):
        before = os.times()
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, timeout=60)
        after = os.times()
        return (after.children_user - before.children_user) + (after.children_system - before.children_system)

    typer = min(cpu(["-c", "import typer"]) for _ in range(5))
    ours = min(cpu(["-m", "auditor", "--help"]) for _ in range(5))
    assert ours <= 3 * typer


def test_the_readme_shows_the_program_s_own_help():
    assert set(re.findall(r"<!-- audit ?(\w*) --help -->", README)) == {"", *COMMANDS}
    assert filled(README) == README


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_s_summary_starts_its_own_help(name):
    module = importlib.import_module(f"auditor.cli.{name}")
    assert module.command.__doc__.startswith(COMMANDS[name].removesuffix("."))


def test_the_readme_has_the_exit_codes():
    for code, meaning in EXITS.items():
        assert re.search(rf"^\| {code} \| .*{re.escape(meaning)}", README, re.MULTILINE), code
    raised = {vars(errors)[name].exit_code for name in vars(errors) if hasattr(vars(errors)[name], "exit_code")}
    assert raised <= set(EXITS)


# --------------------------------------------------------------------------------------------------------- rules, words


def _rule_ids():
    from auditor.plugins import load_checks

    own = [check for check in load_checks() if check.pages == "checks/rules"]
    return sorted({rule.id for check in own for rule in check.rules})


def _page_names():
    return sorted(
        e.name.removesuffix(".md") for e in files("checks").joinpath("rules").iterdir() if e.name.endswith(".md")
    )


def _validity_ids():
    """The rule ids that auditor/validity can report, read from its source."""
    text = "".join(path.read_text("utf-8") for path in SOURCES if path.parent.name == "validity")
    return sorted(set(re.findall(r'"(T5\d\d)"', text)))


def test_every_rule_has_its_page_and_every_page_its_rule():
    assert _page_names() == sorted([*_rule_ids(), *_validity_ids()])
    assert len(_validity_ids()) >= 10


def test_the_index_of_the_rules_is_that_of_their_pages():
    """`python tests/readme.py` renews it."""
    assert RULES.read_text(encoding="utf-8") == index()
    assert re.findall(r"^\| \[(\w+)\]\(rules/\1\.md\) \| \S", index(), re.MULTILINE) != []
    assert sorted(re.findall(r"^\| \[(\w+)\]", index(), re.MULTILINE)) == _page_names()


@pytest.mark.parametrize("name", _page_names())
def test_pages_have_the_fixed_headings(name):
    page = files("checks").joinpath("rules", f"{name}.md").read_text(encoding="utf-8")
    assert re.match(rf"# {name} \S", page)
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == HEADINGS
    sections = re.split(r"^## .*$", page, flags=re.MULTILINE)[1:]
    assert all(section.strip() for section in sections)


@pytest.mark.parametrize("path", TEXTS, ids=_name)
def test_the_project_speaks_of_itself_alone(path):
    text = path.read_text(encoding="utf-8").lower()
    assert [word for word in FORBIDDEN if word in text] == []


def test_constraints_pin_what_is_installed_and_name_no_host():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert lines == sorted(lines, key=str.lower)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", line) for line in lines)
    wanted = re.findall(r'^    "([A-Za-z0-9-]+)[\[>]', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines}
    assert set(wanted) - {"serving-audit"} <= pinned


def test_the_readme_s_profile_is_a_valid_one(tmp_path):
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "prod.yaml"
    path.write_text(block, encoding="utf-8")
    loaded = load_profile(path)
    assert loaded.profile.traffic.target_concurrency == 64
    assert loaded.profile.slo.ttft == {"p95": 1.5}


def test_the_readme_s_own_check_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    (rule,) = names["CHECK"].rules
    profile = load_profile("embedded").profile
    (skip,) = rule.judge(Evidence(profile=profile, today="2026-11-29"))
    dear = replace(profile, deployment=replace(profile.deployment, price_per_hour=7.5))
    (fail,) = rule.judge(Evidence(profile=dear, today="2026-11-29"))
    assert (skip.status, fail.status, fail.why) == ("skip", "fail", "7.5 per hour")


def test_the_gate_runs_the_readme_s_test_command():
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "```sh\npytest\n```" in README
    assert "\npytest\n" in gate
    assert subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=False).returncode == 0
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
