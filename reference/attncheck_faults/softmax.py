"""Faults of softmax and of the returned weights; `m` is the broken module, `sound` the step as it should be."""

import torch

from attncheck_faults.record import fault


@fault("softmax.query-axis", step="softmax", bugs=("B057",), dead_rows="nan")
def query_axis(m, sound, scores):
    """Softmax runs over the queries instead of the keys"""
    return scores.softmax(dim=-2)


@fault("softmax.head-axis", step="softmax", bugs=("B057",), dead_rows="nan")
def head_axis(m, sound, scores):
    """Softmax runs over the heads instead of the keys"""
    return scores.softmax(dim=1)


@fault("softmax.batch-axis", step="softmax", bugs=("B057",), dead_rows="nan")
def batch_axis(m, sound, scores):
    """Softmax runs over the samples instead of the keys"""
    return scores.softmax(dim=0)


@fault("softmax.extra-one", step="softmax")
def extra_one(m, sound, scores):
    """The denominator of softmax has an extra 1, so that rows sum to less than 1"""
    return torch.cat((scores, torch.zeros_like(scores[..., :1])), -1).softmax(-1)[..., :-1]


@fault("softmax.in-bfloat16", step="softmax")
def in_bfloat16(m, sound, scores):
    """Softmax is computed in bfloat16"""
    return scores.bfloat16().softmax(dim=-1).to(scores.dtype)


@fault("softmax.unstable", step="softmax", bugs=("B139",))
def unstable(m, sound, scores):
    """Softmax exponentiates without subtracting the maximum, which overflows"""
    return scores.exp() / scores.exp().sum(-1, keepdim=True)


@fault("weights.are-scores", step="forward")
def are_scores(m, sound, query, key, value, allowed=None, bias=None, need_weights=False):
    """The scores are returned in place of the weights"""
    output, weights = sound(query, key, value, allowed, bias, need_weights)
    return output, None if weights is None else (weights + 1e-3).log()


@fault("value.constant", step="mix")
def constant(m, sound, weights, v):
    """The output does not depend on the values"""
    return torch.zeros_like(sound(weights, v)) + 0.5


@fault("value.pooled", step="mix")
def pooled(m, sound, weights, v):
    """Every query gets the mean of the outputs, so that the order of tokens is lost"""
    mixed = sound(weights, v)
    return mixed.mean(-2, keepdim=True).expand_as(mixed)


@fault("value.last-key-lost-at-length", step="mix", bugs=("B240",))
def last_key_lost(m, sound, weights, v):
    """From eight keys on the last key is left out, as by a loop over whole blocks"""
    return sound(weights, v) if v.shape[-2] < 8 else sound(weights[..., :-1], v[..., :-1, :])
