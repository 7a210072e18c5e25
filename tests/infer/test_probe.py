"""What is observed of a class that nobody has described: what comes out, in which layout, and who sees whom.

N batch, T tokens, h heads
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from torch import Tensor

from attncheck import wiring
from attncheck.registry import checks_of
from attncheck.settings import Request
from attncheck.subject import Answer, Case

ORACLE = next(check for check in checks_of("attention") if check.id == "numeric.oracle")


class Pair(NamedTuple):
    hidden: Tensor
    attention: Tensor


@dataclasses.dataclass
class Outcome:
    attentions: Tensor
    output: Tensor


OUTPUTS: dict[str, tuple[Callable[[Tensor, Tensor], Any], str]] = {
    "tensor": (lambda y, w: y, "none"),
    "tuple": (lambda y, w: (y, w), "per-head"),
    "weights first": (lambda y, w: (w, y), "per-head"),
    "averaged": (lambda y, w: [y, w.mean(1)], "averaged"),
    "with nothing": (lambda y, w: (y, None), "none"),
    "with a cache": (lambda y, w: (y, None, (y, y)), "none"),
    "dict": (lambda y, w: {"attn": w, "out": y}, "per-head"),
    "named tuple": (lambda y, w: Pair(y, w), "per-head"),
    "dataclass": (lambda y, w: Outcome(w, y), "per-head"),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_output_and_weights_are_found_in_the_result(kind: str, core: Any, prepared: Any, passes: Any) -> None:
    pack, weights = OUTPUTS[kind]

    class A(core):
        def forward(self, x: Tensor) -> Any:
            return pack(*self.core(x, x))

    target = prepared(A)
    assert target.conventions["weights"].value == weights
    passes(target, "numeric.oracle")
    subject, case = target.subjects[0], Case("self", 3, 5, 5)
    answer = subject.attempt(subject.draw(case), None, case)
    assert isinstance(answer, Answer)
    shape = {"none": None, "per-head": (3, 4, 5, 5), "averaged": (3, 5, 5)}[weights]
    assert (None if answer.weights is None else tuple(answer.weights.shape)) == shape


@pytest.mark.parametrize("alone", [False, True])
def test_weights_that_must_be_asked_for(alone: bool, core: Any, prepared: Any, passes: Any) -> None:
    class A(core):
        def forward(self, x: Tensor, return_weights: bool = False) -> Any:
            y, w = self.core(x, x)
            return (y, w) if return_weights else y if alone else (y, None)

    target = prepared(A)
    assert target.subjects[0].options == {"weights": (False, True)}
    passes(target, "numeric.oracle")
    for asked in (False, True):
        case = Case("self", 2, 5, 5, options={"weights": asked})
        answer = target.subjects[0].attempt(target.subjects[0].draw(case), None, case)
        assert (answer.weights is not None) == asked


@pytest.mark.parametrize("layout", ["batch-first", "seq-first"])
@pytest.mark.parametrize("across", [False, True])
def test_layout(layout: str, across: bool, core: Any, prepared: Any, passes: Any) -> None:
    class A(core):
        def run(self, x: Tensor, y: Tensor) -> Tensor:
            turned = [z.transpose(0, 1) if layout == "seq-first" else z for z in (x, y)]
            out = self.core(*turned)[0]
            return out.transpose(0, 1) if layout == "seq-first" else out

    class Self(A):
        def forward(self, x: Tensor) -> Tensor:
            return self.run(x, x)

    class Cross(A):
        def forward(self, x: Tensor, memory: Tensor) -> Tensor:
            return self.run(x, memory)

    target = prepared(Cross if across else Self)
    assert (target.conventions["layout"].value, target.conventions["layout"].source) == (layout, "observed")
    passes(target, "numeric.oracle")


def test_a_plain_call_that_fails_is_the_target_s_error(core: Any) -> None:
    class A(core):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("not\n today")

    error = wiring.prepare(Request("m.A"), [], A).error
    assert str(error).startswith("the plain call of m.A raised ValueError: not today; tried: tokens alone")
    assert "`attncheck init m.A`" in str(error)
