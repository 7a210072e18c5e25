"""Norm before, gate, residual and norm after, against the same written with torch's own layers."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from attncheck_reference import MultiHeadAttention


def drawn(**init):
    m = MultiHeadAttention(8, 4, **init).double()
    for parameter in m.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return m


def inner(m):
    """The attention alone."""
    plain = MultiHeadAttention(8, 4, m.kv_heads, value_head_width=m.v.out_features // m.kv_heads).double()
    plain.load_state_dict({k: v for k, v in m.state_dict().items() if "norm" not in k and "gate" not in k})
    return plain


def normed(kind, x, n, eps=None):
    if kind == "layer":
        return F.layer_norm(x, (8,), n.weight, n.bias, 1e-5 if eps is None else eps)
    return F.rms_norm(x, (8,), n.weight, 1e-6 if eps is None else eps) if kind == "rms" else x


NORMS = ("none", "layer", "rms")


@pytest.mark.parametrize("pre", NORMS)
@pytest.mark.parametrize("post", NORMS)
@pytest.mark.parametrize("residual", [False, True])
def test_norms_and_residual_around_self_attention(pre, post, residual):
    m, x = drawn(pre_norm=pre, post_norm=post, residual=residual, norm_eps=0.1), torch.randn(2, 5, 8).double()
    entered = normed(pre, x, m.pre_norm, 0.1)
    output = inner(m)(entered)[0] + (x if residual else 0)
    assert_close(m(x)[0], normed(post, output, m.post_norm, 0.1))
    if pre != "none" or post != "none" or residual:
        assert not torch.allclose(m(x)[0], inner(m)(x)[0])


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_which_memory_is_normed(kind):
    query, memory = torch.randn(2, 4, 8).double(), torch.randn(2, 4, 8).double()
    for rule in ("tied", "never", "same", "own"):
        m = drawn(pre_norm=kind, pre_norm_memory=rule)
        plain, entered = inner(m), normed(kind, query, m.pre_norm)
        kept = query if rule == "never" else entered
        norm = {"same": m.pre_norm, "own": m.memory_norm}.get(rule)
        beside = memory if norm is None else normed(kind, memory, norm)
        assert_close(m(query)[0], plain(entered, kept)[0])
        assert_close(m(query, query, memory)[0], plain(entered, kept, beside)[0])
        assert_close(m(query, memory)[0], plain(entered, beside)[0])
        assert ("memory_norm.weight" in m.state_dict()) == (rule == "own")


@pytest.mark.parametrize(("gate", "width"), [("feature", 12), ("head", 4)])
@pytest.mark.parametrize("pre_norm", ["none", "layer"])
def test_a_gate_on_what_was_merged(gate, width, pre_norm):
    """It reads the query as it is projected, normed where there is a norm; heads of three features."""
    m, x, memory = drawn(gate=gate, value_head_width=3, pre_norm=pre_norm), *torch.randn(2, 2, 5, 8).double()
    assert m.gate.weight.shape == (width, 8)
    entered, found = normed(pre_norm, x, m.pre_norm), []
    plain = inner(m)
    plain.o.register_forward_pre_hook(lambda layer, args: found.append(args[0]))
    plain(entered, memory)
    opened = F.linear(entered, m.gate.weight, m.gate.bias).sigmoid().unflatten(-1, (4, -1))
    merged = (found[0].unflatten(-1, (4, 3)) * opened).flatten(-2)
    assert_close(m(x, memory)[0], F.linear(merged, m.o.weight, m.o.bias))
    assert not torch.allclose(m(x, memory)[0], plain(entered, memory)[0])


def test_an_open_gate_does_nothing():
    m, x = drawn(gate="feature"), torch.randn(2, 5, 8).double()
    torch.nn.init.zeros_(m.gate.weight)
    torch.nn.init.constant_(m.gate.bias, 99.0)
    assert_close(m(x)[0], inner(m)(x)[0])


def test_parameters_and_their_names():
    m = MultiHeadAttention(8, 4, pre_norm="layer", pre_norm_memory="own", post_norm="rms", gate="head", key_width=6,
                           value_width=6, out_width=5, qk_norm="layer", sink=True, position_bias="buckets")  # fmt: skip
    shapes = {k: tuple(v.shape) for k, v in m.named_parameters() if k[:2] not in ("q.", "k.", "v.", "o.")}
    assert shapes == {
        "pre_norm.weight": (8,), "pre_norm.bias": (8,), "memory_norm.weight": (6,), "memory_norm.bias": (6,),
        "post_norm.weight": (5,), "gate.weight": (4, 8), "gate.bias": (4,), "sink": (4,), "q_norm.weight": (2,),
        "q_norm.bias": (2,), "k_norm.weight": (2,), "k_norm.bias": (2,), "position_bias.table": (32, 4),
    }  # fmt: skip
    assert set(MultiHeadAttention(8, 4).state_dict()) == {f"{n}.{p}" for n in "qkvo" for p in ("weight", "bias")}


@pytest.mark.parametrize(
    ("init", "says"),
    [
        ({"gate": "token"}, "gate='token': expected one of none, feature, head"),
        ({"post_norm": "batch"}, "post_norm='batch': expected one of none, rms, layer"),
        ({"pre_norm_memory": "both"}, "pre_norm_memory='both': expected one of tied, never, same, own"),
        ({"residual": True, "out_width": 6}, "residual=True: expected an output as wide as the query, 8, not 6"),
        ({"pre_norm_memory": "same", "key_width": 6}, "pre_norm_memory='same': expected one width for one norm"),
        ({"pre_norm_memory": "own", "key_width": 6}, "pre_norm_memory='own': expected one width for one norm"),
    ],
)
def test_refused(init, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        MultiHeadAttention(8, 4, **init)
