"""Rotation by positions: lengths stay, scores go by distance, and the two pairings differ by the order of features."""

import math
import re

import pytest
import torch
from torch.testing import assert_close

from attncheck_reference import MultiHeadAttention, Rotary


def rotated(x, **init):
    return Rotary(x.shape[-1], **init).rotate(x, torch.arange(x.shape[-2]))


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_one_pair_turns_by_one_radian_a_position(pairing):
    x = torch.tensor([[1.0, 0.0]] * 3).double()
    assert_close(rotated(x, pairing=pairing), torch.tensor([[math.cos(t), math.sin(t)] for t in range(3)]).double())


def test_pair_i_of_two_turns_by_the_base_to_the_minus_i_over_2():
    """Width 4, base 100: pair 0 by 1 and pair 1 by 1/10 radian a position. Interleaved, as in the paper's eq. 34."""
    x = torch.tensor([[1.0, 0.0, 0.0, 1.0]] * 3).double()
    expected = [[math.cos(t), math.sin(t), -math.sin(t / 10), math.cos(t / 10)] for t in range(3)]
    assert_close(rotated(x, base=100.0, pairing="interleaved"), torch.tensor(expected).double())


@pytest.mark.parametrize("part", [2, 4, None])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_lengths_stay_and_so_does_position_0(pairing, part):
    x = torch.randn(2, 3, 5, 8).double()
    y = rotated(x, pairing=pairing, part=part)
    assert_close(y.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(y[..., 0, :], x[..., 0, :])
    assert (y - x)[..., 1:, :].abs().max() > 0.1


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_scores_go_by_the_distance_alone(pairing):
    q, k, rotary = *torch.randn(2, 1, 8).double(), Rotary(8, pairing=pairing)

    def score(t, s):
        return (rotary.rotate(q, torch.tensor([t])) * rotary.rotate(k, torch.tensor([s]))).sum()

    for t, s in ((0, 0), (1, 4), (6, 2)):
        for shift in (1, 5, 1000):
            assert_close(score(t, s), score(t + shift, s + shift))
    assert abs(score(3, 0) - score(0, 3)) > 1e-3


@pytest.mark.parametrize("part", [4, 6, None])
def test_interleaved_is_half_with_the_features_in_another_order(part):
    x, n = torch.randn(5, 8).double(), part or 8
    order = [*range(0, n, 2), *range(1, n, 2), *range(n, 8)]  # where feature i of "half" stands in "interleaved"
    interleaved = rotated(x, pairing="interleaved", part=part)
    assert_close(rotated(x[:, order], pairing="half", part=part), interleaved[:, order])


def test_a_part_turns_as_if_it_were_alone():
    x = torch.randn(5, 8).double()
    y = rotated(x, part=4)
    assert torch.equal(y[:, 4:], x[:, 4:])
    assert_close(y[:, :4], rotated(x[:, :4]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_the_dtype_is_kept(dtype):
    x = torch.randn(5, 8, dtype=dtype)
    bound = 8 * torch.finfo(dtype).eps
    assert_close(rotated(x), rotated(x.double()).to(dtype), rtol=bound, atol=bound)


@pytest.mark.parametrize(("T", "S"), [(4, 4), (3, 5)])
@pytest.mark.parametrize("rotary", ["half", "interleaved", Rotary(4, 100.0, part=2)], ids=str)
def test_the_module_turns_queries_and_keys_and_not_values(rotary, T, S):
    """By hand with complex numbers: a pair of features is one number, times e^(i * angle)."""
    m = MultiHeadAttention(8, 2, rotary=rotary).double()
    r, (query, memory) = m.rotary, (torch.randn(2, n, 8).double() for n in (T, S))

    def turned(x):
        P = r.turned // 2
        angle = torch.arange(x.shape[-2])[:, None] * r.base ** (-torch.arange(P).double() / P)
        first, second = (slice(P), slice(P, 2 * P)) if r.pairing == "half" else (slice(0, 2 * P, 2), slice(1, 2 * P, 2))
        z, y = torch.complex(x[..., first], x[..., second]) * torch.polar(torch.ones_like(angle), angle), x.clone()
        y[..., first], y[..., second] = z.real, z.imag
        return y

    q, k, v = (m.split(layer(x), 2) for layer, x in ((m.q, query), (m.k, memory), (m.v, memory)))
    weights = (turned(q) @ turned(k).mT / 2).softmax(-1)
    output, found = m(query, memory, need_weights=True)
    assert_close(found, weights)
    assert_close(output, m.o((weights @ v).transpose(1, 2).flatten(2)))
    plain = MultiHeadAttention(8, 2).double()
    plain.load_state_dict(m.state_dict())
    assert (plain(query, memory)[0] - output).abs().max() > 1e-3


def test_keys_beside_those_given_are_not_turned():
    m, x = MultiHeadAttention(8, 2, rotary="half", extra_keys=1).double(), torch.randn(1, 4, 8).double()
    _, weights = m(x, need_weights=True)
    q, k, _ = m.heads_of(x, x, x)
    scores = torch.cat((q @ k.mT, q @ m.extra_k.mT), -1) / 2
    assert_close(weights, scores.softmax(-1)[..., :4])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Rotary(5), "5 of 5 features are turned: expected an even number of them"),
        (lambda: Rotary(4, part=6), "6 of 4 features are turned: expected an even number of them"),
        (lambda: Rotary(4, part=0), "0 of 4 features are turned: expected an even number of them"),
        (lambda: Rotary(4, pairing="pairs"), "pairing='pairs': expected one of half, interleaved"),
        (lambda: MultiHeadAttention(8, 2, rotary=Rotary(8)), "rotary of width 8: expected the head width 4"),
        (lambda: rotated(torch.ones(2, 4)[:, :3], part=2) + Rotary(4).rotate(torch.ones(2, 3), torch.arange(2)),
         "x has 3 features a head: expected 4"),
    ],
)  # fmt: skip
def test_refused(make, says):
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        make()
