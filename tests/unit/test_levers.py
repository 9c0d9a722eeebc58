"""What shortens a phase: only levers that are there to pull."""

from dataclasses import replace

from model_shapes import device

from auditor.theory.alternatives import alternatives
from auditor.theory.levers import by_bound
from auditor.theory.settings import Settings

EAGER = Settings(engine="vllm", enforce_eager=True, tensor_parallel=2)
HERE = replace(device(), key="this-cpu", kind="cpu")


def test_levers_that_are_pulled_or_not_there_are_left_out():
    assert by_bound("overhead", EAGER, device()) == (
        "captured graphs (without {enforce_eager})",
        "fewer devices ({tensor_parallel})",
        "larger steps",
    )
    assert by_bound("overhead", Settings(engine="vllm"), device()) == ("larger steps",)
    assert by_bound("overhead", EAGER, HERE) == ("fewer devices ({tensor_parallel})", "larger steps")


def test_a_cpu_has_cores_and_no_second_self():
    assert by_bound("compute", EAGER, device())[1:] == ("more devices ({tensor_parallel})",)
    (cores,) = by_bound("compute", EAGER, HERE)[1:]
    assert cores.startswith("more cores")
    assert "tensor_parallel" in {lever.field for lever in alternatives(EAGER, device())}
    assert "tensor_parallel" not in {lever.field for lever in alternatives(EAGER, HERE)}


def test_without_settings_and_device_all_levers_are_named():
    assert len(by_bound("overhead", None, None)) == 3
    assert not any("cores" in text for text in by_bound("compute", None, None))
    assert by_bound("mixed", None, None) == ()
