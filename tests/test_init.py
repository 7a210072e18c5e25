"""`attncheck init SPEC`: a configuration that holds, or the start of an adapter."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

from attncheck import command, wiring
from attncheck.engine import run
from attncheck.registry import checks_of
from attncheck.settings import settings_of

MET = """
import dataclasses
import torch
from torch import nn

@dataclasses.dataclass
class InitConfig:
    d_model: int = 512
    n_heads: int = 8

class CausalAttention(nn.Module):
    def __init__(self, config: InitConfig):
        super().__init__()
        self.h = config.n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(config.d_model, config.d_model) for _ in range(4))

    def forward(self, x, padding_mask=None):
        q, k, v = (m(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for m in (self.q, self.k, self.v))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        if padding_mask is not None:
            scores = scores.masked_fill(padding_mask[:, None, None], torch.finfo(scores.dtype).min)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))

class Flavoured(CausalAttention):
    def forward(self, x, memory, flavour):
        return super().forward(x)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "init_target.py").write_text(MET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("init_target", None)
    return tmp_path


def test_what_was_found_is_a_configuration_that_holds(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["init", "init_target.CausalAttention"]) == 0
    text = capsys.readouterr().out
    table = tomllib.loads(text)["tool"]["attncheck"]
    entry = table["targets"]["init_target.CausalAttention"]
    assert entry["config"] == "init_target:InitConfig"
    assert entry["init"] == {"d_model": 24, "n_heads": 4}
    assert entry["declare"] == {"layout": "batch-first", "padding_mask": "padding", "causal": "top-left"}
    assert "# padding_mask: padding_mask: edited keys act where False stands" in text
    request = settings_of({"target": ["init_target.CausalAttention"]}, table).requests[0]
    target = wiring.prepare(request, [project])
    assert target.error is None
    assert not [c.id for c in checks_of("attention") if run(c, target, "quick").status in ("failed", "error")]


def test_the_start_of_an_adapter_is_code_with_gaps(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["init", "init_target.Flavoured"]) == 2
    text = capsys.readouterr().out
    ast.parse(text)
    assert "argument 'flavour' has no default and a name of unknown meaning" in " ".join(text.replace("#", "").split())
    assert "from init_target import InitConfig" in text
    assert "self.module = Target(config=InitConfig(d_model=24, n_heads=4))" in text
    assert "return self.module(x=query, memory=key, flavour=...), None" in text
    assert "# fill in flavour" in text
    assert '# adapter = "attncheck_adapter:Adapter"' in text


def test_a_filled_in_starter_works(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["init", "init_target.Flavoured"])
    text = capsys.readouterr().out.replace("flavour=...", "flavour=None")
    text = text.replace('{"weights": "none"}', '{"weights": "none", "causal": "top-left"}')
    (project / "attncheck_adapter.py").write_text(text)
    table = {"targets": {"init_target.Flavoured": {"adapter": "attncheck_adapter:Adapter"}}}
    target = wiring.prepare(settings_of({"target": ["init_target.Flavoured"]}, table).requests[0], [project])
    assert target.error is None
    assert {run(c, target, "quick").status for c in checks_of("attention")} <= {"passed", "inapplicable"}


def test_what_cannot_be_imported_is_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["init", "nowhere.Attention"]) == 2
    assert "attncheck: importing nowhere.Attention raised ModuleNotFoundError" in capsys.readouterr().err
