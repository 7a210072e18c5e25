"""Masks that are nearly what they seem: bools that are only added, floats that block by their mere sign, masks that
take the place of the triangle. N batch, T queries, S keys
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attncheck.subject import Answer, Case, Subject
from attncheck_adapters.infer.form import form_of
from attncheck_adapters.infer.masks import mask_replaces_pattern
from attncheck_adapters.infer.probe import Probe

CASE = Case("self", 2, 4, 4)
TRIANGLE = torch.ones(4, 4, dtype=torch.bool).tril()


@pytest.fixture
def reading(core: Any, prepared: Any) -> Callable[..., Any]:
    """The target of a class that reads its mask in a certain way."""

    def make(read: Callable[[Tensor, Tensor], Tensor], **declare: str) -> Any:
        class A(core):  # type: ignore[misc]
            def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
                return self.core(x, x, lambda s: s if mask is None else read(s, mask))[0]

        return prepared(A, **declare)

    return make


def output(subject: Subject, allowed: Tensor | None) -> Tensor:
    given = subject.attempt(subject.draw(CASE), allowed, CASE)
    assert isinstance(given, Answer), given
    return given.out


@pytest.mark.parametrize("factor", [1, 3, 6])
def test_a_bool_that_is_added_as_0_and_1_is_not_taken_for_allowed(factor: int, reading: Any, passes: Any) -> None:
    """It only prefers the keys where True stands, some more, some less; 0 and -inf hide the others."""
    target = reading(lambda s, m: s + (factor * m if m.dtype == torch.bool else m))
    assert target.conventions["mask"].value == "additive"
    assert "by -inf and not by bool" in target.conventions["mask"].evidence
    assert {encoding for _, _, encoding in target.subjects[0].adapter.form.masks} == {"additive"}
    passes(target, "mask.blocked-keys", "numeric.oracle")


@pytest.mark.parametrize(("factor", "value"), [(3.0, "allowed"), (-3.0, "blocked"), (0.01, None)])
def test_where_nothing_hides_keys_a_strong_preference_is_the_meaning(
    factor: float, value: str | None, reading: Any
) -> None:
    def read(scores: Tensor, mask: Tensor) -> Tensor:
        if mask.dtype != torch.bool:
            raise TypeError("bools only")
        return scores + factor * mask

    assert reading(read).conventions["mask"].value == value


BIASES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool]] = {
    "added": (lambda s, m: s + m, True),
    "added, a finite fill": (lambda s, m: s + m.clamp(min=-1e9), True),
    "below zero is blocked": (lambda s, m: s.masked_fill(m < 0, -torch.inf), False),
    "minus infinity is blocked": (lambda s, m: s.masked_fill(m == -torch.inf, -torch.inf), False),
    "refused between": (lambda s, m: s + m if ((m == 0) | (m == -torch.inf)).all() else 1 / 0, False),
}


@pytest.mark.parametrize("kind", BIASES)
def test_floats_that_are_added_are_a_bias(kind: str, reading: Any) -> None:
    read, adds = BIASES[kind]

    def floats(scores: Tensor, mask: Tensor) -> Tensor:
        if not mask.is_floating_point():
            raise TypeError("floats only")
        return read(scores, mask)

    target = reading(floats)
    assert target.conventions["mask"].value == "additive"
    assert target.subjects[0].takes_bias is adds


def test_bools_are_no_bias(reading: Any) -> None:
    target = reading(lambda s, m: s.masked_fill(~m.bool(), -torch.inf))
    assert (target.conventions["mask"].value, target.subjects[0].takes_bias) == ("allowed", False)


def test_a_bias_reaches_the_target_as_it_is(reading: Any) -> None:
    """Twice the exponential of a bias is twice the weight: the rows of one and of none differ by their bias alone."""
    subject = reading(lambda s, m: s + m).subjects[0]
    assert torch.allclose(output(subject, torch.full((4, 4), 3.0)), output(subject, None), atol=1e-5)
    bias = torch.zeros(4, 4).masked_fill(~TRIANGLE, -1e4)
    assert torch.allclose(output(subject, bias), output(subject, TRIANGLE), atol=1e-6)
    assert not torch.allclose(output(subject, bias / 1e4), output(subject, TRIANGLE), atol=1e-3)


def hidden(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, -torch.inf)


def tril(scores: Tensor) -> Tensor:
    return torch.ones(scores.shape[-2:], dtype=torch.bool).tril()


@pytest.fixture
def causal(core: Any) -> Callable[[bool], type]:
    """A class with a triangle of its own, which a mask replaces or joins."""

    def make(replaced: bool) -> type:
        class A(core):  # type: ignore[misc]
            def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
                def change(s: Tensor) -> Tensor:
                    s = s if replaced and mask is not None else hidden(s, tril(s))
                    return s if mask is None else hidden(s, mask.bool())

                return self.core(x, x, change)[0]

        return A

    return make


@pytest.mark.parametrize("replaced", [True, False])
def test_whether_a_mask_takes_the_place_of_the_triangle(
    replaced: bool, causal: Any, prepared: Any, passes: Any
) -> None:
    target = prepared(causal(replaced))
    assert target.conventions["causal"].value == "top-left"
    told = target.conventions.get("causal_under_mask")
    assert (None if told is None else (told.value, told.source)) == (("replaced", "observed") if replaced else None)
    passes(target, "numeric.oracle", "mask.blocked-keys", "causal.future-edit")
    subject = target.subjects[0]
    full = torch.ones(4, 4, dtype=torch.bool)
    assert torch.equal(output(subject, full), output(subject, TRIANGLE)) is not replaced


@pytest.mark.parametrize("declared", [{"causal": "top-left"}, {"causal_under_mask": "also"}])
def test_a_declaration_stands_against_what_is_seen_under_a_mask(
    declared: dict[str, str], causal: Any, prepared: Any
) -> None:
    told = prepared(causal(True), **declared).conventions.get("causal_under_mask")
    assert (None if told is None else told.value) == declared.get("causal_under_mask")


@pytest.mark.parametrize("replaced", [True, False])
def test_the_probe_itself(replaced: bool, causal: Any) -> None:
    torch.manual_seed(0)
    module = causal(replaced)(24, 4)
    form = form_of(module.forward, "m.A")
    probe = Probe(module, form, (24, 24, 24), None, torch.float32)
    assert mask_replaces_pattern(probe, 4) is False  # no mask is known yet
    form.masks = [("mask", "N11S", "allowed")]
    assert mask_replaces_pattern(probe, 4) is False  # nor one of queries
    form.masks = [("mask", "N11S", "allowed"), ("mask", "TS", "allowed")]
    assert mask_replaces_pattern(probe, 4) is replaced
