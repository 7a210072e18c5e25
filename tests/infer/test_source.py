"""The code that a reproduction prints for an inferred target: it builds and calls the same, from torch alone."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from attncheck import wiring
from attncheck.allowed import random_mask
from attncheck.settings import Request
from attncheck.subject import Answer, Case

HEAD = """
    import dataclasses
    import torch
    from torch import nn

    @dataclasses.dataclass
    class Config:
        n_embd: int
        n_head: int = 2

    class Core(nn.Module):
        def __init__(self, d, h):
            super().__init__()
            self.h, self.qkv, self.out = h, nn.Linear(d, 3 * d), nn.Linear(d, d)

        def run(self, x, mask):
            q, k, v = (y.unflatten(-1, (self.h, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
            scores = q @ k.mT / q.shape[-1] ** 0.5
            w = scores.masked_fill(mask == 0, -torch.inf).softmax(-1) if mask is not None else scores.softmax(-1)
            return self.out((w @ v).transpose(1, 2).flatten(-2)), w
"""
CLASSES = {
    "plain": """
    class A(Core):
        def __init__(self, d_model, n_heads):
            super().__init__(d_model, n_heads)

        def forward(self, x, mask=None):
            return self.run(x, mask)[0]
    """,
    "config": """
    class A(Core):
        def __init__(self, config):
            super().__init__(config.n_embd, config.n_head)

        def forward(self, x, mask=None, return_weights=False):
            return self.run(x, mask) if return_weights else self.run(x, mask)[0]
    """,
    "starts with zeros": """
    class A(Core):
        def __init__(self, d_model, n_heads):
            super().__init__(d_model, n_heads)
            nn.init.zeros_(self.out.weight)

        def forward(self, x, mask=None):
            return self.run(x, mask)[::-1]
    """,
    "seq-first": """
    class A(Core):
        def __init__(self, d_model, n_heads):
            super().__init__(d_model, n_heads)

        def forward(self, x, mask=None):
            return self.run(x.transpose(0, 1), mask)[0].transpose(0, 1)
    """,
    "made by a factory": """
    class B(Core):
        def forward(self, x, mask=None):
            return self.run(x, mask)[0]

    def A(d_model, n_heads):
        return B(d_model, n_heads)
    """,
}


@pytest.fixture(autouse=True)
def search() -> Iterator[None]:
    path, modules, state = list(sys.path), set(sys.modules), torch.get_rng_state()
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    torch.set_rng_state(state)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", CLASSES)
def test_the_printed_code_gives_the_same(kind: str, dtype: str, tmp_path: Path) -> None:
    file = tmp_path / f"printed_{kind.replace(' ', '_').replace('-', '_')}.py"
    file.write_text(textwrap.dedent(HEAD) + textwrap.dedent(CLASSES[kind]))
    target = wiring.prepare(Request(f"{file}:A", declare={"dtype": dtype}), [])
    assert target.error is None, target.error
    for subject in target.subjects:
        assert subject.dtype == getattr(torch, dtype)
        for axes in (None, *subject.masks):
            case = Case("self", 3, 5, 5, options={k: v[-1] for k, v in subject.options.items()})
            mask = None if axes is None else random_mask(axes, subject, case)
            answer = subject.attempt(subject.draw(case), mask, case)
            assert isinstance(answer, Answer), answer
            namespace: dict[str, Any] = {"torch": torch}
            exec(subject.adapter.source([mask]), namespace)
            namespace["target"].eval()
            output, weights = namespace["call"](*answer.inputs.tensors(), mask, **case.options)
            assert torch.equal(output, answer.output)
            assert (weights is None) == (answer.weights is None)
            assert weights is None or torch.equal(weights, answer.weights)


def test_an_object_has_no_code_to_print() -> None:
    layer = torch.nn.TransformerEncoderLayer(24, 4, 32, batch_first=True).self_attn

    class A(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x, x, x)[0]  # type: ignore[no-any-return]

    target = wiring.prepare(Request("m.A"), [], A())
    assert target.error is None
    assert target.subjects[0].adapter.source is None
