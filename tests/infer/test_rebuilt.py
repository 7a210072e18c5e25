"""A class that nobody has described, built again: under another seed, or with a width that its heads do not divide."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncheck import wiring
from attncheck.engine import run
from attncheck.registry import checks_of
from attncheck.settings import Request
from attncheck.spec import BadTarget
from attncheck.subject import Answer, Case, Subject
from attncheck_adapters.infer.form import form_of

HEADS_DIVIDE = next(check for check in checks_of("attention") if check.id == "contract.heads-divide")


class Strict(nn.Module):
    """Refuses a width that its heads do not divide."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.check(d_model, n_heads)
        self.h, self.d = n_heads, d_model // n_heads
        self.q, self.k, self.v = (nn.Linear(d_model, self.h * self.d) for _ in range(3))
        self.o = nn.Linear(self.h * self.d, self.h * self.d)

    def check(self, width: int, heads: int) -> None:
        if width % heads:
            raise ValueError(f"{width} % {heads}")

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (m(x).unflatten(-1, (self.h, self.d)).transpose(1, 2) for m in (self.q, self.k, self.v))
        return self.o(((q @ k.mT / self.d**0.5).softmax(-1) @ v).transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]


class Truncating(Strict):
    def check(self, width: int, heads: int) -> None:
        pass


def state(subject: Subject) -> Tensor:
    return torch.cat([p.detach().flatten() for p in subject.module.parameters()])


def test_the_seed_of_a_class_is_that_of_its_parameters(prepared: Any) -> None:
    subject = prepared(Strict).subjects[0]
    assert torch.equal(state(subject.rebuilt()), state(subject))
    assert not torch.equal(state(subject.rebuilt(seed=1)), state(subject))
    assert torch.equal(state(subject.rebuilt(seed=1)), state(subject.rebuilt(seed=1)))
    assert subject.rebuilt().module is not subject.module


def test_a_rebuilt_one_is_called_itself(prepared: Any) -> None:
    """The generated call has another `target`, and the first one keeps its own."""
    subject, case = prepared(Strict).subjects[0], Case("self", 2, 3, 3)
    other = subject.rebuilt(seed=1)
    first, second = (s.attempt(subject.draw(case), None, case) for s in (subject, other))
    assert isinstance(first, Answer) and isinstance(second, Answer)
    with torch.no_grad():
        assert torch.equal(second.out, other.module(first.inputs.query))
        assert torch.equal(first.out, subject.module(first.inputs.query))


def test_a_rebuilt_one_is_prepared_like_the_first(prepared: Any) -> None:
    class Zeros(Strict):
        def __init__(self, d_model: int, n_heads: int, dropout: float = 0.5) -> None:
            super().__init__(d_model, n_heads)
            nn.init.zeros_(self.o.weight)
            self.drop = nn.Dropout(0.5)

    subject = prepared(Zeros, dtype="float64").subjects[0]
    again = subject.rebuilt()
    assert torch.equal(again.module.o.weight, subject.module.o.weight) and again.module.o.weight.any()
    assert (again.module.drop.p, again.module.training, again.module.o.weight.dtype) == (0.0, False, torch.float64)


def test_an_exception_of_a_width_that_does_not_fit_is_data(prepared: Any) -> None:
    target = prepared(Strict)
    error = target.subjects[0].undivided()
    assert isinstance(error, BadTarget)
    assert str(error) == "building Strict(d_model=10, n_heads=4) raised ValueError: 10 % 4"
    assert run(HEADS_DIVIDE, target).status == "passed"


def test_a_width_that_does_not_fit_is_built_where_it_is_taken(prepared: Any) -> None:
    target = prepared(Truncating)
    made = target.subjects[0].undivided()
    assert isinstance(made, Subject)
    assert (made.widths, made.heads, made.module.d) == ((10, 10, 10), 4, 2)
    assert (target.subjects[0].widths, target.subjects[0].module.d) == ((24, 24, 24), 6)
    result = run(HEADS_DIVIDE, target)
    assert (result.status, result.finding.fault) == ("failed", "heads.width-truncated")
    assert "width 10 with 4 heads gives an output of width 8" in result.finding.evidence


def test_sizes_that_are_not_ours_to_choose(prepared: Any) -> None:
    class Fixed(Strict):
        def __init__(self) -> None:
            super().__init__(24, 4)

    class Headed(Strict):
        def __init__(self, d_model: int, n_heads: int, head_dim: int) -> None:
            super().__init__(d_model, n_heads)

    for obj in (Fixed, Headed, Strict(24, 4)):
        target = prepared(obj)
        assert target.subjects[0].undivided() is None
        assert run(HEADS_DIVIDE, target).status == "inapplicable"


def test_an_instance_is_not_built_again(prepared: Any) -> None:
    subject = prepared(Strict(24, 4)).subjects[0]
    assert subject.rebuilt() is None
    assert subject.reloaded() is None


def test_one_argument_for_queries_and_memory_of_two_widths_is_an_error_that_says_so() -> None:
    class A(Strict):
        def __init__(self, d_model: int, n_heads: int, context_dim: int) -> None:
            super().__init__(d_model, n_heads)

    assert wiring.prepare(Request("m.A"), [], A).error is None
    error = wiring.prepare(Request("m.A", init={"d_model": 24, "n_heads": 4, "context_dim": 16}), [], A).error
    assert error == (
        "calling m.A: one argument takes queries and memory, but its weights have widths 24 and 16; "
        'describe the call by adapter = "pkg.testing:make" in [tool.attncheck.targets."m.A"]'
    )


@pytest.mark.parametrize(("signature", "names", "unread"), [
    ("x, context=None, mask=None, context_mask=None", {"query": "x", "mask": "mask"},
     ("context_mask", "with a memory, which goes with context_mask")),
    ("x, mask=None, memory=None, memory_mask=None", {"query": "x", "mask": "mask"},
     ("memory_mask", "with a memory, which goes with memory_mask")),
    ("x, memory, mask=None, memory_mask=None", {"query": "x", "memory": "memory", "mask": "mask"}, ("memory_mask",)),
    ("x, context=None, mask=None, flavour=None", {"query": "x", "memory": "context", "mask": "mask"}, ("flavour",)),
    ("x, mask=None, other_mask=None", {"query": "x", "mask": "mask"}, ("other_mask",)),
])  # fmt: skip
def test_a_second_mask_for_memory_drops_the_memory(
    signature: str, names: dict[str, str], unread: tuple[str, ...]
) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def f({signature}): pass", namespace)
    form = form_of(namespace["f"], "m.A")
    assert (form.names, form.extra["unread"]) == (names, unread)


def test_the_dropped_memory_is_a_note(prepared: Any) -> None:
    class A(Strict):
        def forward(self, x: Tensor, context: Any = None, mask: Any = None, context_mask: Any = None) -> Tensor:
            assert context is None
            return super().forward(x)

    target = prepared(A)
    assert target.subjects[0].sources == ("self",)
    assert target.notes[0].endswith("left at their defaults: context_mask, with a memory, which goes with context_mask")
