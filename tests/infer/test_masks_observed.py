"""What True means in the mask of a class that nobody has described, and in which shapes it takes it.

N batch, T tokens, h heads
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attncheck.engine import run
from attncheck.registry import checks_of

CHECKS = {check.id: check for check in checks_of("attention")}


def only(dtype: str, mask: Tensor) -> Tensor:
    """Refuse a mask of another kind."""
    kinds = {"bool": mask.dtype == torch.bool, "float": mask.is_floating_point(), "int": mask.dtype == torch.int64}
    if not kinds[dtype]:
        raise TypeError(f"the mask must be {dtype}")
    return mask


READINGS: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "True is allowed": ("allowed", lambda s, m: s.masked_fill(~only("bool", m), -torch.inf)),
    "True is blocked": ("blocked", lambda s, m: s.masked_fill(only("bool", m), -torch.inf)),
    "zero is blocked": ("allowed", lambda s, m: s.masked_fill(m == 0, -torch.inf)),
    "added": ("additive", lambda s, m: s + only("float", m)),
    "added, a finite fill": ("additive", lambda s, m: s + only("float", m).clamp(min=-1e9)),
    "1 is allowed": ("allowed", lambda s, m: s.masked_fill(only("int", m) == 0, -torch.inf)),
    "1 is blocked": ("blocked", lambda s, m: s.masked_fill(only("int", m) == 1, -torch.inf)),
}


@pytest.fixture
def with_mask(core: Any) -> Any:
    """Makes a class that reads its mask in a certain way."""

    def make(read: Callable[[Tensor, Tensor], Tensor]) -> type:
        class A(core):  # type: ignore[misc]
            def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
                return self.core(x, x, lambda s: s if mask is None else read(s, mask))[0]

        return A

    return make


@pytest.mark.parametrize("reading", READINGS)
def test_what_true_means(reading: str, with_mask: Any, prepared: Any, passes: Any) -> None:
    value, read = READINGS[reading]
    target = prepared(with_mask(read))
    told = target.conventions["mask"]
    assert (told.value, told.source) == (value, "observed")
    assert "mask" in told.evidence
    passes(target, "mask.polarity", "numeric.oracle")
    assert set(target.subjects[0].masks) == {"TS", "N11S", "N1TS", "1hTS", "NhTS"}


def test_a_mask_without_effect_has_no_meaning(with_mask: Any, prepared: Any) -> None:
    target = prepared(with_mask(lambda s, m: s))
    assert target.conventions["mask"].value is None
    assert "no clear effect" in target.conventions["mask"].evidence
    assert run(CHECKS["mask.polarity"], target).status == "failed"


def test_a_mask_that_is_never_taken_has_no_meaning(with_mask: Any, prepared: Any) -> None:
    def refuse(s: Tensor, m: Tensor) -> Tensor:
        raise NotImplementedError

    target = prepared(with_mask(refuse))
    assert target.conventions["mask"].value is None
    assert "was accepted" in target.conventions["mask"].evidence
    assert target.subjects[0].masks == ()


def test_no_mask_argument(core: Any, prepared: Any) -> None:
    class A(core):
        def forward(self, x: Tensor) -> Tensor:
            return self.core(x, x)[0]

    target = prepared(A)
    assert target.conventions["mask"].value == "none"
    assert run(CHECKS["mask.polarity"], target).status == "inapplicable"


@pytest.mark.parametrize(("meaning", "value"), [("real", 1), ("padding", 0)])
def test_a_padding_mask_has_words_of_its_own(core: Any, meaning: str, value: int, prepared: Any, passes: Any) -> None:
    class A(core):
        def forward(self, x: Tensor, pad_mask: Tensor | None = None, attn_mask: Tensor | None = None) -> Tensor:
            def change(s: Tensor) -> Tensor:
                s = s if attn_mask is None else s.masked_fill(~only("bool", attn_mask), -torch.inf)
                return s if pad_mask is None else s.masked_fill((pad_mask != value)[:, None, None], -torch.inf)

            return self.core(x, x, change)[0]

    target = prepared(A)
    assert (target.conventions["padding_mask"].value, target.conventions["mask"].value) == (meaning, "allowed")
    passes(target, "mask.polarity", "numeric.oracle")


SHAPES: dict[str, tuple[Callable[[Tensor], Tensor], set[str]]] = {
    "(T,S)": (lambda m: m[None, None], {"TS"}),
    "(N,S)": (lambda m: m[:, None, None], {"N11S"}),
    "(N,T,S)": (lambda m: m[:, None], {"TS", "N11S", "N1TS"}),
    "(N*h,T,S)": (lambda m: m.unflatten(0, (-1, 4)), {"TS", "N11S", "N1TS", "1hTS", "NhTS"}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shapes_that_are_taken(core: Any, shape: str, prepared: Any, passes: Any) -> None:
    read, axes = SHAPES[shape]

    class A(core):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            N, T = x.shape[:2]
            wanted = {"(T,S)": (T, T), "(N,S)": (N, T), "(N,T,S)": (N, T, T), "(N*h,T,S)": (N * 4, T, T)}[shape]
            if mask is not None and mask.shape != wanted:
                raise ValueError(f"mask.shape={tuple(mask.shape)}")
            fill = lambda s: s if mask is None else s.masked_fill(~read(only("bool", mask)), -torch.inf)  # noqa: E731
            return self.core(x, x, fill)[0]

    target = prepared(A)
    assert set(target.subjects[0].masks) == axes
    passes(target, "mask.polarity", "mask.blocked-keys", "numeric.oracle")


def test_a_declaration_decides_how_the_mask_is_handed_over(with_mask: Any, prepared: Any) -> None:
    """A class that reads the mask the other way round is then caught, where observation would follow it."""
    inverted = with_mask(READINGS["True is blocked"][1])
    assert run(CHECKS["mask.blocked-keys"], prepared(inverted)).status == "passed"
    target = prepared(inverted, mask="allowed")
    assert (target.conventions["mask"].value, target.conventions["mask"].source) == ("allowed", "declared")
    assert run(CHECKS["mask.polarity"], target).status == "failed"


@pytest.mark.parametrize(("reading", "meaning"), [("1 is allowed", "allowed"), ("1 is blocked", "blocked")])
def test_integers_are_handed_over_where_they_are_declared(
    reading: str, meaning: str, with_mask: Any, prepared: Any, passes: Any
) -> None:
    passes(prepared(with_mask(READINGS[reading][1]), mask=meaning), "mask.polarity", "mask.blocked-keys")
