"""A plain call that works: masks and tables that have to be there, samples one by one, heads behind positions."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncheck import wiring
from attncheck.engine import Target, run
from attncheck.registry import checks_of
from attncheck.settings import Request


def prepared(obj: Any, **options: Any) -> Target:
    target = wiring.prepare(Request("m.A", **options), [], obj)
    assert target.error is None, target.error
    return target


def no_findings(target: Target) -> None:
    results = [run(check, target, "quick") for check in checks_of(target.kind)]
    assert not [r for r in results if r.status in ("failed", "error")]
    assert sum(r.status == "passed" for r in results) > 10


class Plain(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.h = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.h, -1)).transpose(-2, -3)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, blocked: Tensor | None = None) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores if blocked is None else scores.masked_fill(blocked, -torch.inf)
        return self.o((scores.softmax(-1) @ v).transpose(-2, -3).flatten(-2))  # type: ignore[no-any-return]

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))


class NeedsMask(Plain):
    def forward(self, x: Tensor, attn_mask: Tensor) -> Tensor:
        return self.attend(*self.heads(x), attn_mask.bool())


def test_a_mask_that_has_to_be_there() -> None:
    """True means blocked, so that nothing is blocked by all False."""
    target = prepared(NeedsMask)
    assert target.conventions["mask"].value == "blocked"
    assert target.subjects[0].adapter.form.plain[2] == "blocked"
    assert target.oracles[0] is not None
    no_findings(target)


class OneSample(Plain):
    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 2:
            raise ValueError("one sequence at a time")
        return self.attend(*self.heads(x))


def test_one_sample_at_a_time() -> None:
    target = prepared(OneSample)
    assert target.conventions["layout"].value == "unbatched"
    assert target.oracles[0] is not None
    no_findings(target)


class Turned(Plain):
    """Rotary tables (T,d) are arguments; the pairing is the class's own."""

    interleaved = False

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if self.interleaved:
            crossed = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        else:
            crossed = torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)
        return x * cos + crossed * sin

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.attend(self.turn(q, cos, sin), self.turn(k, cos, sin), v)


class Interleaved(Turned):
    interleaved = True


@pytest.mark.parametrize(("cls", "pairing"), [(Turned, "half"), (Interleaved, "interleaved")])
def test_rotary_tables_are_given_as_they_are_paired(cls: type[Turned], pairing: str) -> None:
    """Only tables of the right pairing make scores that depend on distances."""
    target = prepared(cls)
    rotary = target.subjects[0].twins["reading"].settings["rotary"]
    assert (rotary.pairing, rotary.turned) == (pairing, 6)
    assert target.conventions["positions"].value == "relative"
    no_findings(target)


def flagged(diagonal: int) -> Any:
    """A kernel on (N,T,h,d) whose flag hides the keys from this diagonal on."""

    def kernel(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(diagonal), -torch.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2)

    return kernel


def test_heads_behind_positions_and_a_flag_for_the_triangle() -> None:
    target = prepared(flagged(1))
    assert (target.kind, target.conventions["layout"].value) == ("kernel", "heads-last")
    assert target.conventions["causal_flag"].value == "top-left"
    assert target.conventions["causal"].value == "no"
    no_findings(target)


def test_a_wrong_triangle_of_a_flag_is_found() -> None:
    target = prepared(flagged(2))
    found = {r.check for c in checks_of("kernel") if (r := run(c, target, "quick")).status == "failed"}
    assert "causal.future-edit" in found


class Lengths(Plain):
    def forward(self, x: Tensor, valid_lens: Tensor | None = None) -> Tensor:
        blocked = None
        if valid_lens is not None:
            blocked = (torch.arange(x.shape[1]) >= valid_lens[:, None])[:, None, None]
        return self.attend(*self.heads(x), blocked)


def test_lengths_are_a_mask_of_padding_at_the_end() -> None:
    target = prepared(Lengths)
    assert target.conventions["padding_mask"].value == "real"
    assert target.subjects[0].prefix_only
    no_findings(target)


class NeedsMemory(Plain):
    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        if context is None:
            raise ValueError("context is missing")
        return self.attend(self.split(self.q(x)), self.split(self.k(context)), self.split(self.v(context)))


def test_a_memory_that_is_optional_by_its_default_alone() -> None:
    target = prepared(NeedsMemory)
    assert target.subjects[0].sources == ("memory",)
    no_findings(target)


def test_what_was_tried_is_said() -> None:
    class Never(Plain):
        def forward(self, x: Tensor, attn_mask: Tensor) -> Tensor:
            raise RuntimeError("no such luck")

    error = str(wiring.prepare(Request("m.A"), [], Never).error)
    assert "raised RuntimeError: no such luck; tried: tokens alone, a mask that blocks nothing" in error
    assert "`attncheck init m.A`" in error
