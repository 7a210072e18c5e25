"""Faults of rotated positions (Su et al. 2021, "RoFormer", equation 34).

N batch, T queries, S keys, h heads, g key/value heads, d head width, P pairs of features
"""

import torch

from attncheck_faults.record import fault


@fault("rotary.queries-only", step="rotate", rotary="half")
def queries_only(m, sound, q_NhTd, k_NgSd):
    """Queries are turned to their positions, and keys are not"""
    return sound(q_NhTd, k_NgSd)[0], k_NgSd


@fault("rotary.sign-lost", step="rotate", rotary="half")
def sign_lost(m, sound, q_NhTd, k_NgSd):
    """Pairs of features are mixed with two plus signs, which is no rotation"""
    return tuple(mixed(m.rotary, x) for x in (q_NhTd, k_NgSd))


def mixed(rotary, x_NhTd):
    angle_TP = torch.arange(x_NhTd.shape[-2])[:, None] * rotary.frequencies()
    cos_TP, sin_TP = angle_TP.cos().to(x_NhTd), angle_TP.sin().to(x_NhTd)
    a_NhTP, b_NhTP = rotary.pairs(x_NhTd[..., : rotary.turned])
    pairs = rotary.joined(a_NhTP * cos_TP + b_NhTP * sin_TP, a_NhTP * sin_TP + b_NhTP * cos_TP)
    return torch.cat((pairs, x_NhTd[..., rotary.turned :]), -1)


@fault("rotary.against-each-other", step="rotate", rotary="half")
def against_each_other(m, sound, q_NhTd, k_NgSd):
    """Keys are turned the other way round, so that scores depend on the sum of two positions"""
    backwards_S = -torch.arange(k_NgSd.shape[-2], device=k_NgSd.device)
    return sound(q_NhTd, k_NgSd)[0], m.rotary.rotate(k_NgSd, backwards_S)


@fault("rotary.by-head", step="rotate", bugs=("B217",), rotary="half")
def by_head(m, sound, q_NhTd, k_NgSd):
    """The number of the head is taken for the position, as by a table that lies along the wrong axis"""
    return tuple(x.transpose(1, 2) for x in sound(q_NhTd.transpose(1, 2), k_NgSd.transpose(1, 2)))


@fault("rotary.mixed-pairing", step="rotate", bugs=("B035",), rotary="half")
def mixed_pairing(m, sound, q_NhTd, k_NgSd):
    """Angles are repeated for neighbours, and the features that are turned together are halves apart"""
    return tuple(mispaired(m.rotary, x) for x in (q_NhTd, k_NgSd))


def mispaired(rotary, x_NhTd):
    angle_TP = torch.arange(x_NhTd.shape[-2])[:, None] * rotary.frequencies()
    angle_Td = angle_TP.repeat_interleave(2, -1).to(x_NhTd)
    a_NhTP, b_NhTP = rotary.pairs(x_NhTd[..., : rotary.turned])
    crossed = rotary.joined(-b_NhTP, a_NhTP)
    turned = x_NhTd[..., : rotary.turned] * angle_Td.cos() + crossed * angle_Td.sin()
    return torch.cat((turned, x_NhTd[..., rotary.turned :]), -1)


@fault("rotary.positions-doubled", step="rotate", bugs=("B223",), rotary="half")
def positions_doubled(m, sound, q_NhTd, k_NgSd):
    """Every position counts twice: scores still depend on distances alone"""
    return tuple(m.rotary.rotate(x, 2 * torch.arange(x.shape[-2], device=x.device)) for x in (q_NhTd, k_NgSd))
