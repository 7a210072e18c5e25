"""Norms: torch's own, by hand, and where queries and keys get theirs."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from attncheck_reference import LayerNorm, MultiHeadAttention, RMSNorm, Rotary, unit


def drawn(m):
    """The module with all parameters drawn, so that norms are not 1 and 0."""
    for parameter in m.parameters():
        torch.nn.init.normal_(parameter)
    return m.double()


@pytest.mark.parametrize("eps", [1e-6, 0.5])
@pytest.mark.parametrize("weight", [False, True])
def test_rms_norm_is_torchs(eps, weight):
    m, x = drawn(RMSNorm(6, eps=eps, weight=weight)), torch.randn(2, 3, 6).double()
    assert_close(m(x), F.rms_norm(x, (6,), m.weight, eps))


@pytest.mark.parametrize("eps", [1e-5, 0.5])
@pytest.mark.parametrize(("weight", "bias"), [(False, False), (True, False), (True, True)])
def test_layer_norm_is_torchs(eps, weight, bias):
    m, x = drawn(LayerNorm(6, eps=eps, weight=weight, bias=bias)), torch.randn(2, 3, 6).double()
    assert_close(m(x), F.layer_norm(x, (6,), m.weight, m.bias, eps))


def test_by_hand():
    assert unit(torch.tensor([3.0, 4.0])).tolist() == pytest.approx([0.6, 0.8])
    assert unit(torch.zeros(2)).tolist() == [0, 0]
    assert RMSNorm(2, eps=0.0)(torch.tensor([1.0, 7.0])).tolist() == pytest.approx([0.2, 1.4])  # the mean square is 25
    assert LayerNorm(2, eps=0.0)(torch.tensor([3.0, 9.0])).tolist() == pytest.approx([-1, 1])


KINDS = {
    "rms": lambda x, n, eps: F.rms_norm(x, (x.shape[-1],), None, eps) * n.weight,
    "layer": lambda x, n, eps: F.layer_norm(x, (x.shape[-1],), None, None, eps) * n.weight + n.bias,
    "unit": lambda x, n, eps: F.normalize(x, dim=-1, eps=eps),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("over", ["head", "each", "all"])
@pytest.mark.parametrize("g", [4, 2])
def test_queries_and_keys_are_normalised(kind, over, g):
    m = drawn(MultiHeadAttention(12, 4, g, qk_norm=kind, qk_norm_over=over, qk_norm_eps=0.1))
    if kind != "unit":
        assert m.q_norm.weight.shape == {"head": (3,), "each": (4, 1, 3), "all": (12,)}[over]
        assert m.k_norm.weight.shape == {"head": (3,), "each": (g, 1, 3), "all": (3 * g,)}[over]
    x, normed = torch.randn(2, 5, 12).double(), []
    for layer, n, heads in ((m.q, m.q_norm, 4), (m.k, m.k_norm, g)):
        y = layer(x)
        y = KINDS[kind](y, n, 0.1).unflatten(-1, (heads, 3)).transpose(1, 2) if over == "all" else KINDS[kind](
            y.unflatten(-1, (heads, 3)).transpose(1, 2), n, 0.1
        )  # fmt: skip
        normed.append(y.repeat_interleave(4 // heads, 1))
    _, weights = m(x, need_weights=True)
    assert_close(weights, (normed[0] @ normed[1].mT / 3**0.5).softmax(-1))


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_before_the_rotation_or_after_it(kind):
    """A weight that differs by feature does not commute with the rotation."""
    first = drawn(MultiHeadAttention(8, 2, qk_norm=kind, rotary="half"))
    last = MultiHeadAttention(8, 2, qk_norm=kind, rotary="half", qk_norm_first=False).double()
    last.load_state_dict(first.state_dict())
    x, rotary = torch.randn(2, 5, 8).double(), Rotary(4)
    q, k = (first.split(layer(x), 2) for layer in (first.q, first.k))
    turned = [rotary.rotate(n(y), torch.arange(5)) for n, y in ((first.q_norm, q), (first.k_norm, k))]
    assert_close(first(x, need_weights=True)[1], (turned[0] @ turned[1].mT / 2).softmax(-1))
    normed = [n(rotary.rotate(y, torch.arange(5))) for n, y in ((first.q_norm, q), (first.k_norm, k))]
    assert_close(last(x, need_weights=True)[1], (normed[0] @ normed[1].mT / 2).softmax(-1))
    assert not torch.allclose(first(x)[0], last(x)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_of_the_query_no_longer_matters(kind):
    m, x = MultiHeadAttention(8, 2, qk_norm=kind, qk_norm_eps=1e-12, bias=False).double(), torch.randn(1, 4, 8).double()
    assert_close(m(3 * x, x)[0], m(x, x)[0])
    plain = MultiHeadAttention(8, 2, bias=False).double()
    assert not torch.allclose(plain(3 * x, x)[0], plain(x, x)[0])


@pytest.mark.parametrize(("kind", "eps"), [("rms", 1e-6), ("layer", 1e-5), ("unit", 1e-12)])
def test_eps_has_a_default_of_its_kind(kind, eps):
    m = MultiHeadAttention(8, 2, qk_norm=kind)
    assert m.q_norm.eps == m.k_norm.eps == eps


def test_a_scale_of_each_head():
    scale, x = torch.tensor([0.1, 3.0]).view(2, 1, 1), torch.randn(2, 5, 8)
    m = MultiHeadAttention(8, 2, qk_norm="unit", scale=scale)
    _, weights = m(x, need_weights=True)
    for head, factor in enumerate((0.1, 3.0)):
        one = MultiHeadAttention(8, 2, qk_norm="unit", scale=factor)
        one.load_state_dict(m.state_dict())
        assert_close(weights[:, head], one(x, need_weights=True)[1][:, head])
    assert m.half()(x.half())[0].dtype == torch.float16


@pytest.mark.parametrize(
    ("init", "says"),
    [
        ({"qk_norm": "l2"}, "qk_norm='l2': expected one of none, rms, layer, unit"),
        ({"qk_norm_over": "heads"}, "qk_norm_over='heads': expected one of head, each, all"),
        ({"qk_norm_over": "all", "qk_norm_first": False}, "qk_norm_first=False: expected True where all"),
        ({"pre_norm": "unit"}, "pre_norm='unit': expected one of none, rms, layer"),
        ({"scale": torch.ones(2)}, r"scale.shape=\(2,\): expected \(2, 1, 1\), or a number"),
    ],
)
def test_refused(init, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        MultiHeadAttention(8, 2, **init)
