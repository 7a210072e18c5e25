"""Shipped adapters against the float64 reference on their own weights, in every configuration, mask and option."""

import itertools
import warnings
from types import ModuleType
from typing import Any

import pytest
import torch

from attncheck import wiring
from attncheck.allowed import random_mask, triangle
from attncheck.checks.numeric import expected
from attncheck.compare import Failure, close
from attncheck.subject import MASK_AXES, MODES, Answer, Case, Subject, subject_of
from attncheck_adapters import torch_mha

EXTRA = [
    {"embed_dim": 24, "num_heads": 4, "batch_first": True, "add_bias_kv": True, "add_zero_attn": True},
    {"embed_dim": 16, "num_heads": 4, "add_bias_kv": True},
    {"embed_dim": 24, "num_heads": 4, "kdim": 20, "vdim": 14, "batch_first": True, "add_zero_attn": True},
]
BUILT = [(module, init) for module in wiring.adapters() for init in module.CONFIGURATIONS]
BUILT += [(torch_mha, init) for init in EXTRA]
NAMES = [f"{m.__name__.rpartition('.')[2]}-{'-'.join(f'{k}={v}' for k, v in init.items())}" for m, init in BUILT]
each = pytest.mark.parametrize(("module", "init"), BUILT, ids=NAMES)


def built(module: ModuleType, init: dict[str, Any]) -> Subject:
    return subject_of(module.make(**init), module.KIND)


def calls(subject: Subject, axes: str) -> Any:
    """Every way of calling it, under every option, with a mask of these axes."""
    for sources, values in itertools.product(subject.sources, itertools.product(*subject.options.values())):
        options = dict(zip(subject.options, values, strict=True))
        S = 5 if sources in ("self", "clones") else 7
        case = Case(sources, 3, 5, S, options=options, seed=len(axes))
        mask = {"none": None, "causal": triangle(case)}.get(axes, "random")
        mask = random_mask(axes, subject, case) if mask == "random" else mask
        answer = subject.attempt(subject.draw(case), mask, case)
        if not getattr(answer, "unsupported", False):
            yield answer


@each
@pytest.mark.parametrize("axes", ["none", "causal", *MASK_AXES])
def test_the_reference_on_its_weights_gives_its_output(module: ModuleType, init: dict[str, Any], axes: str) -> None:
    subject = built(module, init)
    oracle = wiring.oracle_for(subject)
    assert oracle is not None
    answers = list(calls(subject, axes))
    assert len(answers) >= len(subject.sources)
    for got in answers:
        assert isinstance(got, Answer), got
        want, bound = expected(subject, oracle, got)
        close(got, want.out, bound, f"in [{got.case}]")
        assert bound() < 1e-4
        if got.weights is not None:
            assert got.weights.shape == (3, subject.heads, 5, got.case.S)
            assert torch.allclose(got.weights.double(), want.weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("init", EXTRA, ids=str)
def test_keys_of_its_own_in_every_mode(init: dict[str, Any], mode: str) -> None:
    subject = built(torch_mha, init)
    oracle = wiring.oracle_for(subject)
    for axes in ("none", "TS", "N11S", "NhTS"):
        for answer in calls(subject, axes):
            again = subject.attempt(answer.inputs, answer.allowed, answer.case.but(mode=mode))
            want, bound = expected(subject, oracle, again)
            close(again, want.out, bound, f"in [{again.case}]")
            if again.weights is not None:
                assert torch.allclose(again.weights.double(), want.weights, rtol=0, atol=1e-6)
                assert (again.weights.sum(-1) < 1).all()


WITH_WEIGHTS = [(module, init) for module, init in BUILT if module.KIND == "attention"]


@pytest.mark.parametrize(("module", "init"), WITH_WEIGHTS)
def test_another_weight_is_seen(module: ModuleType, init: dict[str, Any]) -> None:
    """The parity above could not fail if the reference did not work on these weights."""
    subject = built(module, init)
    for name in wiring.oracle_for(subject).adapter.weights():
        oracle = wiring.oracle_for(subject)
        with torch.no_grad():
            oracle.module.get_parameter(name).mul_(1.5).add_(0.2)
        got = next(calls(subject, "none"))
        want, bound = expected(subject, oracle, got)
        if name == "k.bias" and "extra_k" not in oracle.adapter.weights():  # moves all scores of a query alike
            close(got, want.out, bound, "")
        else:
            with pytest.raises(Failure):
                close(got, want.out, bound, "")


@each
@pytest.mark.parametrize("axes", ["none", "causal", *MASK_AXES])
def test_the_code_of_a_reproduction_gives_the_same(module: ModuleType, init: dict[str, Any], axes: str) -> None:
    subject = built(module, init)
    state = torch.get_rng_state()
    for got in calls(subject, axes):
        namespace: dict[str, Any] = {"torch": torch}
        exec(subject.adapter.source([got.allowed]), namespace)
        if subject.module is not None:
            namespace["target"].train(False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that nested tensors are a prototype
            output, weights = namespace["call"](*got.inputs.tensors(), got.allowed, **got.case.options)
        assert torch.allclose(output, got.output, rtol=0, atol=1e-6)
        assert (weights is None) == (got.weights is None)
        assert weights is None or torch.allclose(weights, got.weights, rtol=0, atol=1e-6)
    torch.set_rng_state(state)


@each
def test_what_it_says_of_itself(module: ModuleType, init: dict[str, Any]) -> None:
    subject = built(module, init)
    assert subject.kind in ("attention", "kernel")
    assert subject.widths[0] > 0
    assert subject.heads % subject.kv_heads == 0
    assert set(subject.masks) == set(MASK_AXES)
    assert {"mask", "causal", "layout", "weights"} <= set(subject.conventions)


@pytest.mark.parametrize("init", torch_mha.CONFIGURATIONS + EXTRA, ids=str)
def test_the_code_of_a_reproduction_takes_floats(init: dict[str, Any]) -> None:
    subject = built(torch_mha, init)
    bias = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    for masks in subject.options["masks"]:
        case = Case("separate", 3, 5, 7, options={"mask": "additive", "masks": masks})
        got = subject.attempt(subject.draw(case), bias, case)
        assert isinstance(got, Answer), got
        namespace: dict[str, Any] = {"torch": torch}
        exec(subject.adapter.source([bias]), namespace)
        output, weights = namespace["call"](*got.inputs.tensors(), bias, **case.options)
        assert torch.allclose(output, got.output, rtol=0, atol=1e-6)
        assert torch.allclose(weights, got.weights, rtol=0, atol=1e-6)
