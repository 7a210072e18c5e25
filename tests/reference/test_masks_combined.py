"""Given masks: how their axes are read, and that all masks together are a logical AND. N, h, T, S as everywhere."""

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import DotProductAttention, MultiHeadAttention

FORMS = {
    "(T,S)": lambda N, h, T, S: (T, S),
    "(1,1,1,S)": lambda N, h, T, S: (1, 1, 1, S),
    "(N,1,1,S)": lambda N, h, T, S: (N, 1, 1, S),
    "(N,1,T,S)": lambda N, h, T, S: (N, 1, T, S),
    "(1,h,T,S)": lambda N, h, T, S: (1, h, T, S),
    "(1,h,1,S)": lambda N, h, T, S: (1, h, 1, S),
    "(1,1,T,S)": lambda N, h, T, S: (1, 1, T, S),
    "(N,h,T,S)": lambda N, h, T, S: (N, h, T, S),
}
SIZES = [(2, 3, 4, 5), (3, 3, 3, 3), (2, 2, 5, 2), (1, 2, 1, 4)]


def drawn(*shape):
    """A random mask that leaves each row a key."""
    mask = torch.rand(shape) < 0.5
    mask.scatter_(-1, torch.randint(shape[-1], (*shape[:-1], 1)), True)
    return mask


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("N", "h", "T", "S"), SIZES)
def test_every_form_is_its_expansion(form, N, h, T, S):
    m = MultiHeadAttention(2 * h, h)
    query, memory = torch.randn(N, T, 2 * h), torch.randn(N, S, 2 * h)
    allowed = drawn(*FORMS[form](N, h, T, S))
    full = torch.empty(N, h, T, S, dtype=torch.bool)
    for n in range(N):
        for i in range(h):
            for t in range(T):
                four = allowed if allowed.ndim == 4 else allowed[None, None]
                full[n, i, t] = four[n % four.shape[0], i % four.shape[1], t % four.shape[2]]
    output, weights = m(query, memory, allowed=allowed, need_weights=True)
    expected, _ = m(query, memory, allowed=full)
    assert torch.equal(weights > 0, full)
    assert torch.equal(output, expected)


def test_hiding_a_key_is_like_leaving_it_out():
    m = MultiHeadAttention(6, 3)
    query, memory = torch.randn(2, 4, 6), torch.randn(2, 5, 6)
    allowed = torch.tensor([True, False, True, True, False]).expand(4, 5)
    output, _ = m(query, memory, allowed=allowed)
    expected, _ = m(query, memory[:, [0, 2, 3]])
    assert_close(output, expected)


def test_what_is_hidden_does_not_matter():
    m = MultiHeadAttention(6, 3, causal=True)
    x = torch.randn(2, 5, 6)
    changed = x.clone()
    changed[:, 3:] = torch.randn(2, 2, 6)
    assert torch.equal(m(x)[0][:, :3], m(changed)[0][:, :3])
    assert not torch.equal(m(x)[0][:, 3:], m(changed)[0][:, 3:])


def test_all_four_masks_are_a_logical_and():
    N, h, T, S = 2, 3, 5, 6
    q, k = torch.randn(N, h, T, 4), torch.randn(N, h, S, 4)
    allowed, not_forbidden = torch.rand(N, 1, 1, S) < 0.7, torch.rand(1, h, T, S) < 0.7
    bias = torch.randn(1, h, T, S).masked_fill(~not_forbidden, -torch.inf)
    m = DotProductAttention(h, causal=True, window=(-2, 1), dead_rows="zero")
    _, weights = m(q, k, k, allowed, bias, need_weights=True)
    t, s = torch.arange(T)[:, None], torch.arange(S)
    masks = [x.expand(N, h, T, S) for x in (allowed, not_forbidden, s <= t, (s >= t - 2) & (s <= t + 1))]
    assert torch.equal(weights > 0, masks[0] & masks[1] & masks[2] & masks[3])
    hiding = sum((~x).int() for x in masks)
    assert (hiding == 0).any()
    assert all((~x & (hiding == 1)).any() for x in masks), "a mask that never hides a key alone is not tested"


@pytest.mark.parametrize("init", [{"causal": True}, {"window": (-1, 1)}, {"causal": True, "window": (-1, 0)}])
def test_a_built_in_mask_is_the_same_mask_given(init):
    m = MultiHeadAttention(6, 3, **init)
    x, padding = torch.randn(2, 5, 6), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]).bool()[:, None, None, :]
    given = m.pattern(5, 5, x.device)
    output, _ = m(x, allowed=padding)
    m.causal, m.window = False, None
    assert torch.equal(output, m(x, allowed=given & padding)[0])
