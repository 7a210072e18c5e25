"""The call of a class: which argument is what, by name, and the generated code that calls it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attncheck.masks import conventions, keep_int
from attncheck.spec import BadTarget
from attncheck.subject import MASK_AXES
from attncheck_adapters.infer.code import CANONICAL, ENCODE, NATIVE, call_code, canonical_masks
from attncheck_adapters.infer.form import Form, form_of

N, h, T, S, D = 3, 4, 5, 7, 6


def function(signature: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(f"def f({signature}): pass", namespace)
    return namespace["f"]  # type: ignore[no-any-return]


CALLS = {
    "x": ({"query": "x"}, ("self",)),
    "hidden_states, attention_mask=None": ({"query": "hidden_states", "mask": "attention_mask"}, ("self",)),
    "q, k, v, mask": ({"query": "q", "key": "k", "value": "v", "mask": "mask"},
                      ("self", "clones", "memory", "separate")),
    "query, key, value, key_padding_mask=None, need_weights=True, average_attn_weights=True": (
        {"query": "query", "key": "key", "value": "value", "padding": "key_padding_mask", "weights": "need_weights"},
        ("self", "clones", "memory", "separate")),
    "x, context": ({"query": "x", "memory": "context"}, ("memory",)),
    "x, context=None, mask=None": ({"query": "x", "memory": "context", "mask": "mask"}, ("self", "memory")),
    "query, key": ({"query": "query", "key": "key"}, ("memory",)),
    "values, keys, queries": ({"query": "queries", "key": "keys", "value": "values"},
                              ("self", "clones", "memory", "separate")),
    "Q, K, V, *, return_attention=False": ({"query": "Q", "key": "K", "value": "V", "weights": "return_attention"},
                                           ("self", "clones", "memory", "separate")),
    "anything, flavour=3, **rest": ({"query": "anything"}, ("self",)),
    "x, attn_mask=None, mask=None": ({"query": "x", "mask": "attn_mask", "padding": "mask"}, ("self",)),
}  # fmt: skip


@pytest.mark.parametrize("signature", CALLS)
def test_roles_by_name(signature: str) -> None:
    form = form_of(function(signature), "m.A")
    assert (form.names, form.sources()) == CALLS[signature]


UNCALLED = {
    "x, memory, flavour": "calling m.A: argument 'flavour' has no default",
    "mask": "no argument of ['mask'] is known to be the query",
    "*args": "no argument of [] is known to be the query",
}


@pytest.mark.parametrize(("signature", "text"), UNCALLED.items())
def test_what_cannot_be_called_is_said(signature: str, text: str) -> None:
    with pytest.raises(BadTarget) as caught:
        form_of(function(signature), "m.A")
    assert text in str(caught.value)


def canonical(axes: str) -> Tensor:
    sizes = {"N": N, "h": h, "T": T, "S": S, "1": 1}
    return torch.rand([sizes[a] for a in axes], generator=torch.Generator().manual_seed(1)) < 0.5


def called(form: Form, allowed: Tensor | None, narrow: bool, **options: Any) -> dict[str, Any]:
    """What the target is handed."""
    seen: dict[str, Any] = {}

    def target(**given: Any) -> Any:
        seen.update(given)
        return torch.zeros(given["x"].shape), "the weights"

    namespace: dict[str, Any] = {"torch": torch, "target": target}
    exec(call_code(form, h, [allowed] if narrow else None), namespace)
    query, key = torch.ones(N, T, D), torch.zeros(N, S, D)
    namespace["call"](query, key, key, allowed, **options)
    return seen


SHAPES = {
    "TSN": (T, S, N), "TSN1": (T, S, N, 1), "NS": (N, S), "N11S": (N, 1, 1, S), "N1S": (N, 1, S), "TS": (T, S),
    "1TS": (1, T, S), "11TS": (1, 1, T, S), "N1TS": (N, 1, T, S), "NTS": (N, T, S), "1hTS": (1, h, T, S),
    "hTS": (h, T, S), "NhTS": (N, h, T, S), "(Nh)TS": (N * h, T, S),
}  # fmt: skip
DECODE = {"int-allowed": keep_int.decode, "int-blocked": lambda m: ~keep_int.decode(m)}
# How a native mask is read by a target that expects these axes, as (N,h,T,S).
READ: dict[str, Callable[[Tensor], Tensor]] = {
    "NS": lambda m: m[:, None, None], "N1S": lambda m: m[:, None], "NTS": lambda m: m[:, None],
    "(Nh)TS": lambda m: m.view(N, h, T, S), "TSN": lambda m: m.permute(2, 0, 1)[:, None],
    "TSN1": lambda m: m[..., 0].permute(2, 0, 1)[:, None],
}  # fmt: skip


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("encoding", ENCODE)
@pytest.mark.parametrize("native", sorted(set(NATIVE) - {"N"}))
def test_a_mask_reaches_the_target_in_its_own_form(native: str, encoding: str, narrow: bool) -> None:
    form = Form({"query": "x", "mask": "m"}, output="result[0]", masks=[("m", native, encoding)])
    assert canonical_masks(form) == tuple(a for a in MASK_AXES if a in CANONICAL[NATIVE[native][1]])
    for axes in canonical_masks(form):
        seen = called(form, canonical(axes), narrow)
        assert seen["m"].shape == SHAPES[native]
        allowed = DECODE.get(encoding, lambda m: conventions()[encoding].decode(m))(seen["m"])
        read = READ.get(native, lambda m: m)(allowed)
        assert torch.equal(read.expand(N, h, T, S), canonical(axes).expand(N, h, T, S))


@pytest.mark.parametrize("narrow", [False, True])
def test_lengths_say_padding_at_the_end_alone(narrow: bool) -> None:
    form = Form({"query": "x", "lengths": "lens"}, output="result[0]", masks=[("lens", "N", "allowed")])
    real = torch.arange(S) < torch.tensor([7, 3, 1])[:, None]
    assert called(form, real[:, None, None], narrow)["lens"].tolist() == [7, 3, 1]
    with pytest.raises(NotImplementedError, match="no mask of these axes"):
        called(form, real.flip(-1)[:, None, None], narrow=False)


def test_a_mask_that_cannot_be_said_is_refused() -> None:
    form = Form({"query": "x", "mask": "m"}, output="result[0]", masks=[("m", "NS", "allowed")])
    for axes in set(MASK_AXES) - {"N11S"}:
        with pytest.raises(NotImplementedError, match="no mask of these axes"):
            called(form, canonical(axes), narrow=False)


def test_a_padding_mask_goes_to_the_argument_for_it() -> None:
    form = Form({"query": "x"}, output="result[0]", masks=[("pad", "NS", "blocked"), ("m", "N1TS", "allowed")])
    assert set(called(form, canonical("N11S"), narrow=False)) == {"x", "pad"}
    assert set(called(form, canonical("TS"), narrow=False)) == {"x", "m"}
    assert set(called(form, None, narrow=False)) == {"x"}


@pytest.mark.parametrize("layout", ["batch-first", "seq-first"])
def test_layout_memory_and_weights(layout: str) -> None:
    form = Form({"query": "x", "memory": "context", "weights": "need_weights"}, layout, "result[0]", "result[1]")
    seen = called(form, None, narrow=False, weights=False)
    first = layout == "batch-first"
    assert seen["x"].shape == ((N, T, D) if first else (T, N, D))
    assert seen["context"].shape == ((N, S, D) if first else (S, N, D))
    assert seen["need_weights"] is False


@pytest.mark.parametrize("layout", ["batch-first", "seq-first"])
def test_one_tensor_stays_one_on_the_way(layout: str) -> None:
    seen: list[bool] = []
    form = Form({r: r for r in ("query", "key", "value")}, layout)

    def target(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        seen.extend((query is key, key is value))
        return query

    namespace: dict[str, Any] = {"torch": torch, "target": target}
    exec(call_code(form, h), namespace)
    x, y = torch.ones(N, T, D), torch.zeros(N, T, D)
    for given in ((x, x, x), (x, y, y), (x, y, x), (x, x, y)):
        namespace["call"](*given, None)
    assert seen == [True, True, False, True, False, False, True, False]
