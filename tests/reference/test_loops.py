"""The module against loops over plain Python floats, written from the formula and from nothing else."""

import math
import random

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import MultiHeadAttention


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def linear(layer, token):
    rows = layer.weight.tolist()
    bias = [0.0] * len(rows) if layer.bias is None else layer.bias.tolist()
    return [dot(row, token) + b for row, b in zip(rows, bias, strict=True)]


def by_loops(m, d, e, factor, query, key, value):
    """m: holds the four linear layers.  d, e: head width of keys and of values."""
    group = m.heads // m.kv_heads
    outputs, all_weights = [], []
    for n in range(len(query)):
        k, v = [linear(m.k, x) for x in key[n]], [linear(m.v, x) for x in value[n]]
        heads_T = []
        for x in query[n]:
            q, merged, weights_h = linear(m.q, x), [], []
            for i in range(m.heads):
                j = i // group
                mine = q[i * d : (i + 1) * d]
                exps = [math.exp(factor * dot(mine, k_s[j * d : (j + 1) * d])) for k_s in k]
                weights = [x / sum(exps) for x in exps]
                merged += [dot(weights, [v_s[j * e + c] for v_s in v]) for c in range(e)]
                weights_h.append(weights)
            outputs.append(merged if isinstance(m.o, torch.nn.Identity) else linear(m.o, merged))
            heads_T.append(weights_h)
        all_weights.append(heads_T)
    weights_NhTS = torch.tensor(all_weights, dtype=torch.float64).transpose(1, 2)
    return torch.tensor(outputs, dtype=torch.float64).view(len(query), len(query[0]), -1), weights_NhTS


def compare(N, T, S, width, heads, **init):
    m = MultiHeadAttention(width, heads, **init).double()
    d = init.get("head_width") or width // heads
    e = init.get("value_head_width") or d
    factor = init.get("scale", 1 / math.sqrt(d))
    key_width, value_width = init.get("key_width", width), init.get("value_width", width)
    inputs = [torch.randn(N, L, w).double() for L, w in ((T, width), (S, key_width), (S, value_width))]
    output, weights = m(*inputs, need_weights=True)
    expected, expected_weights = by_loops(m, d, e, factor, *(x.tolist() for x in inputs))
    assert_close(output, expected)
    assert_close(weights, expected_weights)
    return output


@pytest.mark.parametrize(
    ("width", "heads", "init"),
    [
        (8, 2, {}),
        (4, 1, {}),
        (6, 6, {}),
        (12, 6, {"kv_heads": 2}),
        (12, 6, {"kv_heads": 3}),
        (12, 6, {"kv_heads": 1}),
        (8, 2, {"key_width": 5, "value_width": 7}),
        (8, 2, {"out_width": 3}),
        (8, 2, {"head_width": 3}),
        (7, 2, {"head_width": 3}),
        (8, 2, {"value_head_width": 5}),
        (8, 4, {"kv_heads": 2, "head_width": 3, "value_head_width": 1, "key_width": 2, "out_width": 9}),
        (8, 2, {"bias": False}),
        (8, 2, {"bias": False, "out_bias": True}),
        (8, 2, {"bias": True, "out_bias": False}),
        (8, 2, {"output": False}),
        (8, 2, {"output": False, "value_head_width": 5}),
        (8, 2, {"scale": 1.5}),
    ],
    ids=str,
)
@pytest.mark.parametrize(("N", "T", "S"), [(2, 3, 3), (1, 4, 6), (3, 5, 2)])
def test_every_option(N, T, S, width, heads, init):
    compare(N, T, S, width, heads, **init)


@pytest.mark.parametrize("draw", range(12))
def test_drawn_shapes(draw):
    pick = random.Random(draw)
    g, group, d = pick.randint(1, 3), pick.randint(1, 3), pick.randint(1, 5)
    N, T, S = pick.randint(1, 3), pick.randint(1, 6), pick.randint(1, 6)
    output = compare(N, T, S, g * group * d, g * group, kv_heads=g, value_head_width=pick.randint(1, 5))
    assert output.shape == (N, T, g * group * d)


@pytest.mark.parametrize(("init", "width"), [({}, 8), ({"out_width": 3}, 3), ({"output": False}, 8)])
def test_width_of_the_output(init, width):
    output, _ = MultiHeadAttention(8, 2, **init)(torch.randn(2, 3, 8))
    assert output.shape == (2, 3, width)
    output, _ = MultiHeadAttention(8, 2, value_head_width=5, output=False)(torch.randn(2, 3, 8))
    assert output.shape == (2, 3, 10)


@pytest.mark.parametrize(
    ("init", "present"),
    [
        ({}, "qkvo"),
        ({"bias": False}, ""),
        ({"bias": False, "out_bias": True}, "o"),
        ({"out_bias": False}, "qkv"),
        ({"output": False}, "qkv"),
    ],
)
def test_which_biases_there_are(init, present):
    names = dict(MultiHeadAttention(8, 2, **init).named_parameters())
    assert {name for name in names if name.endswith("bias")} == {f"{x}.bias" for x in present}
