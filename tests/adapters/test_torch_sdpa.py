"""F.scaled_dot_product_attention: each option changes the call that torch sees, and a form is taken where it can be."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attncheck import wiring
from attncheck.allowed import triangle
from attncheck.checks.numeric import expected
from attncheck.compare import close
from attncheck.engine import run
from attncheck.registry import checks_of
from attncheck.settings import Request
from attncheck.subject import Answer, Case, Refusal, Subject, subject_of
from attncheck_adapters import sdpa_call, torch_sdpa

CASE = Case("separate", 3, 5, 7)
SDPA = F.scaled_dot_product_attention


def subject(**init: Any) -> Subject:
    return subject_of(torch_sdpa.make(**init), "kernel")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What torch is called with, and the backends that are open then."""
    calls: list[dict[str, Any]] = []

    def watched(query: Tensor, key: Tensor, value: Tensor, **given: Any) -> Tensor:
        on = {"math": torch.backends.cuda.math_sdp_enabled(), "flash": torch.backends.cuda.flash_sdp_enabled()}
        calls.append({"query": query, "key": key, "value": value, **on, **given})
        return SDPA(query, key, value, **given)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    return calls


def called(allowed: Tensor | None, case: Case = CASE, of: Subject | None = None, **options: str) -> Answer | Refusal:
    of = of or subject()
    case = case.but(options=options)
    return of.attempt(of.draw(case), allowed, case)


def padding(*lengths: int) -> Tensor:
    return (torch.arange(7) < torch.tensor(lengths)[:, None])[:, None, None]


def test_the_first_values_are_the_plain_call(seen: list[dict[str, Any]]) -> None:
    called(None, **{name: values[0] for name, values in subject().options.items()})
    assert seen[0].keys() == {"query", "key", "value", "math", "flash", "enable_gqa"}
    assert (seen[0]["math"], seen[0]["flash"], seen[0]["enable_gqa"]) == (True, True, False)


@pytest.mark.parametrize("backend", ["math", "flash"])
def test_a_backend_is_alone(seen: list[dict[str, Any]], backend: str) -> None:
    assert isinstance(called(None, backend=backend), Answer)
    assert {name for name in ("math", "flash") if seen[0][name]} == {backend}
    assert torch.backends.cuda.math_sdp_enabled() and torch.backends.cuda.flash_sdp_enabled()


def test_what_flash_does_not_take_is_refused() -> None:
    for answer in (called(None, CASE.but(strided=True), backend="flash"),
                   called(None, of=subject(value_width=10), backend="flash")):  # fmt: skip
        assert isinstance(answer, Refusal)
        assert answer.unsupported
        assert "flash backend does not take" in str(answer)


def test_another_error_of_torch_is_a_finding() -> None:
    """A mask that does not fit is no matter of backends."""
    answer = called(torch.ones(4, 4).bool(), backend="math")
    assert isinstance(answer, Refusal)
    assert not answer.unsupported


def test_the_flag_is_set_for_the_triangle_alone(seen: list[dict[str, Any]]) -> None:
    first = torch.zeros(3, 1, 1, 7).bool()
    first[..., 0] = True  # as the first row of a triangle, but for all queries
    for mask in (triangle(CASE), first, torch.ones(5, 7).bool()):
        called(mask, mask="flag")
    assert [(call.get("is_causal"), "attn_mask" in call) for call in seen] == [
        (True, False), (None, True), (None, True)
    ]  # fmt: skip


def test_nested_is_jagged(seen: list[dict[str, Any]]) -> None:
    called(None, pack="nested")
    called(padding(7, 3, 5), pack="nested")
    for call, lengths in zip(seen, ([7, 7, 7], [7, 3, 5]), strict=True):
        assert all(call[name].is_nested and call[name].layout == torch.jagged for name in ("query", "key", "value"))
        assert call["key"].transpose(1, 2).offsets().diff().tolist() == lengths
        assert "attn_mask" not in call


OTHERS = {"triangle": triangle(CASE), "left": padding(7, 3, 5).flip(-1), "none": padding(7, 3, 0),
          "hole": padding(7, 3, 5) & (torch.arange(7) != 1)}  # fmt: skip


@pytest.mark.parametrize("mask", OTHERS.values(), ids=OTHERS)
def test_what_jagged_tensors_cannot_say_stays_dense(seen: list[dict[str, Any]], mask: Tensor) -> None:
    called(mask, pack="nested")
    assert not seen[0]["query"].is_nested
    assert torch.equal(seen[0]["attn_mask"], mask)


def test_groups_and_flash_stay_dense(seen: list[dict[str, Any]]) -> None:
    called(None, of=subject(heads=6, kv_heads=2), pack="nested")
    called(None, pack="nested", backend="flash")
    assert not any(call["query"].is_nested for call in seen)


@pytest.mark.parametrize("lengths", [(7, 7, 7), (7, 3, 5), (1, 1, 2)], ids=str)
@pytest.mark.parametrize("pack", ["nested", "packed"])
@pytest.mark.parametrize("backend", ["default", "math"])
def test_padding_on_the_right(lengths: tuple[int, ...], pack: str, backend: str) -> None:
    of = subject()
    got = called(padding(*lengths), of=of, pack=pack, backend=backend)
    want, bound = expected(of, wiring.oracle_for(of), got)
    close(got, want.out, bound, pack)


@pytest.mark.parametrize("mask", [None, triangle(CASE), padding(7, 3, 5)], ids=["none", "triangle", "padding"])
@pytest.mark.parametrize("form", ["bool", "additive", "flag"])
def test_packed_is_one_row_of_blocks(seen: list[dict[str, Any]], mask: Tensor | None, form: str) -> None:
    called(mask, of=subject(heads=6, kv_heads=2), pack="packed", mask=form)
    (call,) = seen
    assert call["query"].shape[:3] == (1, 6, 15) and call["key"].shape[:3] == (1, 2, 21)
    blocks = call["attn_mask"] if form != "additive" else call["attn_mask"] == 0
    assert (call["attn_mask"].dtype == torch.bool) == (form != "additive")
    full = torch.ones(5, 7).bool() if mask is None else mask
    assert torch.equal(blocks[0, 0], torch.block_diag(*full.expand(3, 1, 5, 7)[:, 0].int()).bool())


def test_samples_of_a_row_that_meet_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    target = wiring.prepare(Request("torch.nn.functional.scaled_dot_product_attention"), [])
    target.subjects[0].options = {"pack": ("packed",)}
    check = next(check for check in checks_of("kernel") if check.id == "symmetry.batch")
    assert run(check, target, "quick").status == "passed"
    monkeypatch.setattr(sdpa_call.torch, "eye", lambda n, **kind: torch.ones(n, n, **kind))
    assert run(check, target, "quick").status == "failed"


@pytest.mark.parametrize("pack", ["dense", "nested", "packed"])
@pytest.mark.parametrize("shape", [(5, 7), (3, 1, 1, 7), (3, 4, 5, 7)], ids=str)
def test_floats_are_added_to_the_scores(pack: str, shape: tuple[int, ...]) -> None:
    of = subject()
    bias, inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0)), of.draw(CASE)
    bias[..., 0] = -torch.inf
    got = of.attempt(inputs, bias, CASE.but(options={"mask": "additive", "pack": pack}))
    assert isinstance(got, Answer)
    assert torch.allclose(got.output, SDPA(*inputs.tensors(), attn_mask=bias), rtol=0, atol=1e-6)


@pytest.mark.parametrize("pack", ["nested", "packed"])
def test_a_value_of_another_length_is_not_cut_to_fit(pack: str) -> None:
    """What does not fit reaches torch as it is, which refuses it."""
    of = subject()
    inputs = of.draw(CASE)
    longer = torch.cat((inputs.value, inputs.value[:, :, :1]), 2)
    with pytest.raises(RuntimeError):
        of.adapter.call(inputs.query, inputs.key, longer, None, pack=pack, backend="math")
