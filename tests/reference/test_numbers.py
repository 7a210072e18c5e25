"""Number formats and extreme scores."""

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import DotProductAttention, MultiHeadAttention

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dead_rows", ["nan", "zero", "uniform"])
def test_the_dtype_is_kept(dtype, dead_rows):
    m = MultiHeadAttention(6, 3, causal=True, dropout=0.5, dead_rows=dead_rows).to(dtype)
    x, allowed = torch.randn(2, 4, 6, dtype=dtype), torch.ones(2, 1, 1, 4, dtype=torch.bool)
    allowed[1] = False
    output, weights = m(x, allowed=allowed, bias=torch.randn(4, 4, dtype=dtype), need_weights=True)
    assert (output.dtype, weights.dtype) == (dtype, dtype)
    assert output[0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_a_narrow_dtype_gives_the_wide_result_rounded(dtype):
    m = MultiHeadAttention(6, 3, causal=True).to(dtype)
    x = torch.randn(2, 4, 6, dtype=dtype)
    output, _ = m(x)
    expected, _ = m.double()(x.double())
    tolerance = 8 * torch.finfo(dtype).eps
    assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)


def scored(dtype, *scores):
    """One query 1 and keys that give these scores; the values are 1, 2, ..."""
    keys = torch.tensor(scores, dtype=dtype).view(1, 1, -1, 1)
    return torch.ones(1, 1, 1, 1, dtype=dtype), keys, torch.arange(1, len(scores) + 1).to(dtype).view_as(keys)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("scores", "weights"),
    [
        ((1e4, -1e4, 0.0), [1, 0, 0]),
        ((-1e4, -1e4), [0.5, 0.5]),
        ((1e4, 1e4), [0.5, 0.5]),
        ((1e4, 9e3), [1, 0]),
        ((0.0, -1e4), [1, 0]),
    ],
    ids=str,
)
def test_extreme_scores(dtype, scores, weights):
    output, found = DotProductAttention(1)(*scored(dtype, *scores), need_weights=True)
    assert found.flatten().tolist() == weights
    assert output.item() == sum(w * (i + 1) for i, w in enumerate(weights))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["allowed", "bias"])
def test_a_hidden_key_stays_hidden_beside_extreme_scores(dtype, form):
    """A mask of -1e4 in place of -inf would let the hidden key win."""
    allowed = torch.tensor([[True, True, False]])
    mask = allowed if form == "allowed" else torch.zeros(1, 3, dtype=dtype).masked_fill(~allowed, -torch.inf)
    _, weights = DotProductAttention(1)(*scored(dtype, -3e4, -3e4, 3e4), **{form: mask}, need_weights=True)
    assert weights.flatten().tolist() == [0.5, 0.5, 0]


def test_gradients_of_extreme_scores_are_finite():
    q, k, v = (x.requires_grad_() for x in scored(torch.float32, 1e4, -1e4, 0.0))
    DotProductAttention(1)(q, k, v)[0].sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    assert v.grad.flatten().tolist() == [1, 0, 0]


def test_gradients_agree_with_differences():
    m = MultiHeadAttention(4, 2, 1, causal=True).double()
    three = [torch.randn(2, 3, 4).double().requires_grad_() for _ in range(3)]
    bias = torch.randn(3, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda q, k, v, b: m(q, k, v, bias=b, need_weights=True), (*three, bias))
