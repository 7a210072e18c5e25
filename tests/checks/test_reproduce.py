"""The script of a finding is run: it fails while the fault is there, and no longer once the reference is sound."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from attncheck import engine, wiring
from attncheck.registry import checks_of
from attncheck_faults import faults

CHECKS = checks_of("attention")
ROOT = Path(__file__).parents[2]
FIRST = {fault: next(c for c in CHECKS if fault in c.faults) for fault in faults()}
# A script compares two calls in one process. These faults need the calls that the check made before.
STATEFUL = {"dropout.off-after-eval"}
# The sound reference has what these say: it refuses to be built, or does not have the positions that were declared.
SOUND_FAILS = {"heads.width-truncated": ValueError, "positions.absent": AssertionError}


def script_of(fault: str) -> str:
    result = engine.run(FIRST[fault], wiring.faulty_target(faults()[fault]), wiring.effort(FIRST[fault], True))
    assert result.finding is not None
    command, _, script = result.finding.reproduce.partition("\n\n")
    assert command.startswith("pytest 'attncheck:")
    return script


@pytest.mark.parametrize("fault", sorted(set(FIRST) - STATEFUL))
def test_script_fails_with_the_fault_and_passes_without(fault: str) -> None:
    script = script_of(fault)
    with pytest.raises(Exception) as caught:
        run(script)
    assert not isinstance(caught.value, NameError | SyntaxError | AttributeError | ImportError), script
    sound = script.replace(f"faults()[{fault!r}].broken()", "__import__('attncheck_reference').MultiHeadAttention")
    with pytest.raises(SOUND_FAILS[fault]) if fault in SOUND_FAILS else contextlib.nullcontext():
        run(sound)


def run(script: str) -> None:
    import torch

    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(True):
        exec(compile(script, "reproduction", "exec"), {"__name__": "__main__"})


def test_script_is_a_program_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "reproduce.py"
    file.write_text(script_of("causal.diagonal-plus-one"))
    paths = [str(ROOT / part) for part in ("reference",)]
    done = subprocess.run(
        [sys.executable, file],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(paths), "PATH": ""},
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "AssertionError" in done.stderr


FOREIGN = '''
import torch
from torch import nn


class Attention(nn.Module):
    """Keys and queries of one head; the triangle is one too high."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.to_qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.num_heads, -1).transpose(1, 2) for y in self.to_qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / (C // self.num_heads) ** 0.5
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(2), float("-inf"))
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))
'''


def test_script_of_a_foreign_class_needs_torch_and_the_class_alone(tmp_path: Path) -> None:
    (tmp_path / "student.py").write_text(FOREIGN)
    from attncheck.settings import Request

    target = wiring.prepare(Request("student.py:Attention", declare={"causal": "top-left"}), [tmp_path])
    assert target.error is None
    check = next(c for c in CHECKS if c.id == "causal.future-edit")
    finding = engine.run(check, target).finding
    assert finding is not None
    assert finding.fault == "causal.diagonal-plus-one"
    file = tmp_path / "reproduce.py"
    file.write_text(finding.reproduce.partition("\n\n")[2])
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, env={"PATH": ""}, cwd=tmp_path)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr
    assert "attncheck" not in file.read_text().partition("import torch")[2]
