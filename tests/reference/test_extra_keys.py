"""Keys beside those given, which every query sees: appended by hand, and what follows from them."""

import pytest
import torch
from torch.testing import assert_close

from attncheck_faults import faults
from attncheck_reference import MultiHeadAttention


def appended_by_hand(m, x, allowed):
    """Head by head: the projected keys and values with the extra ones below, and a mask that is True for them."""
    N, S, _ = x.shape
    group = m.heads // m.kv_heads
    q, k, v = (y.unflatten(-1, (-1, m.extra_k.shape[-1])) for y in m.project(x, x, x))
    mixed, weights = [], []
    for n in range(N):
        for i in range(m.heads):
            keys = torch.cat((k[n, :, i // group], m.extra_k[i // group]))
            values = torch.cat((v[n, :, i // group], m.extra_v[i // group]))
            seen = torch.cat((allowed, torch.ones(S, m.extra_keys, dtype=torch.bool)), 1)
            scores = q[n, :, i] @ keys.T / keys.shape[1] ** 0.5
            weights.append(scores.masked_fill(~seen, -torch.inf).softmax(-1))
            mixed.append(weights[-1] @ values)
    output = torch.stack(mixed).view(N, m.heads, S, -1).transpose(1, 2).flatten(2)
    return m.o(output), torch.stack(weights).view(N, m.heads, S, -1)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (4, 2)])
@pytest.mark.parametrize("extra", [1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
def test_as_if_they_stood_behind_the_others(heads, kv_heads, extra, masked):
    m, x = MultiHeadAttention(8, heads, kv_heads, extra_keys=extra).double(), torch.randn(2, 5, 8).double()
    allowed = torch.rand(5, 5) < 0.5 if masked else torch.ones(5, 5).bool()
    output, weights = m(x, allowed=allowed if masked else None, need_weights=True)
    expected, expected_weights = appended_by_hand(m, x, allowed)
    assert_close(output, expected)
    assert_close(weights, expected_weights[..., :5])
    assert (weights.sum(-1) < 1).all()


def test_a_pair_of_zeros_is_a_one_in_the_denominator():
    """Its score is 0, exp(0) = 1, and it adds nothing to the output."""
    m, x = MultiHeadAttention(8, 2, extra_keys=1).double(), torch.randn(2, 5, 8).double()
    plain = faults()["softmax.extra-one"].broken()(8, 2).double()
    with torch.no_grad():
        m.extra_k.zero_()
        m.extra_v.zero_()
    plain.load_state_dict({k: v for k, v in m.state_dict().items() if not k.startswith("extra")})
    for given, expected in zip(m(x, need_weights=True), plain(x, need_weights=True), strict=True):
        assert_close(given, expected)


@pytest.mark.parametrize("form", ["allowed", "bias"])
@pytest.mark.parametrize("dead_rows", ["refuse", "nan", "zero", "uniform"])
def test_no_row_is_dead(form, dead_rows):
    """A query that no mask leaves a key gets the extra value itself, whatever the rule for dead rows is."""
    m, x = MultiHeadAttention(8, 2, extra_keys=1, dead_rows=dead_rows).double(), torch.randn(1, 3, 8).double()
    allowed = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 1]]).bool()
    bias = torch.zeros(3, 3).double().masked_fill(~allowed, -torch.inf)
    output, weights = m(x, **{form: allowed if form == "allowed" else bias}, need_weights=True)
    assert_close(output[0, 1], m.o(m.extra_v.flatten()))
    assert not weights[0, :, 1].any()


def test_a_causal_module_sees_them_too():
    m, x = MultiHeadAttention(8, 2, extra_keys=2, causal=True).double(), torch.randn(1, 4, 8).double()
    assert_close(m(x)[0], appended_by_hand(m, x, torch.ones(4, 4).bool().tril())[0])


def test_a_bias_that_is_broadcast_along_the_keys():
    m, x = MultiHeadAttention(8, 2, extra_keys=1).double(), torch.randn(1, 4, 8).double()
    narrow = torch.randn(4, 1).double()
    assert_close(m(x, bias=narrow)[0], m(x, bias=narrow.expand(4, 4))[0])
    assert not torch.allclose(m(x, bias=narrow)[0], m(x)[0])  # without extra keys it would shift all scores alike


def test_they_learn():
    m = MultiHeadAttention(8, 2, extra_keys=2)
    m(torch.randn(1, 4, 8))[0].square().sum().backward()
    assert m.extra_k.grad.abs().min() > 0
    assert m.extra_v.grad.abs().min() > 0


def test_without_them_nothing_changes():
    torch.manual_seed(1)
    plain = MultiHeadAttention(8, 2)
    torch.manual_seed(1)
    extended = MultiHeadAttention(8, 2, extra_keys=1)
    assert not [name for name in plain.state_dict() if name.startswith("extra")]
    assert all(torch.equal(w, extended.state_dict()[name]) for name, w in plain.state_dict().items())


def test_fewer_than_none_is_refused():
    with pytest.raises(ValueError, match="extra_keys=-1: expected at least 0"):
        MultiHeadAttention(8, 2, extra_keys=-1)
