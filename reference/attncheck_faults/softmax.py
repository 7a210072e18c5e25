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


@fault("scores.clamped-under-mask", step="mask")
def clamped_under_mask(m, sound, scores, allowed):
    """Under a mask the scores are cut off at 1"""
    return sound(scores if allowed is None else scores.clamp(-1, 1), allowed)


@fault("softmax.maximum-of-all", step="softmax")
def maximum_of_all(m, sound, scores):
    """Softmax subtracts the maximum of all rows instead of the row's own, so that small rows underflow"""
    weights = (scores - scores.amax()).exp()
    return weights / weights.sum(-1, keepdim=True)


@fault("softmax.empty-block", step="softmax", bugs=("B027", "B249"))
def empty_block(m, sound, scores):
    """Softmax runs over blocks of two keys, and a block without an allowed key makes its row NaN"""
    blocks = scores.split(2, -1)
    empty = torch.stack([(block == -torch.inf).all(-1) for block in blocks]).any(0)
    return sound(scores).masked_fill(empty[..., None], torch.nan)


@fault("weights.heads-reversed", step="forward", path="weights")
def heads_reversed(m, sound, query, key=None, value=None, allowed=None, bias=None, need_weights=False):
    """The returned weights are those of the heads in reverse order"""
    output, weights = sound(query, key, value, allowed, bias, need_weights)
    return output, None if weights is None else weights.flip(1)


@fault("weights.averaged-on-request", step="forward", path="weights", bugs=("B055",))
def averaged_on_request(m, sound, query, key=None, value=None, allowed=None, bias=None, need_weights=False):
    """The weights of each head are asked for, and their average comes back for all"""
    output, weights = sound(query, key, value, allowed, bias, need_weights)
    return output, None if weights is None else weights.mean(1, keepdim=True).expand_as(weights)


@fault("weights.first-head-for-all", step="attend")
def first_head(m, sound, q, k, v, allowed, bias):
    """All heads mix their values by the weights of the first"""
    _, weights = sound(q, k, v, allowed, bias)
    weights = weights[:, :1].expand_as(weights)
    return m.mix(m.dropout(weights), m.spread(v)), weights


@fault("value.scaled-by-length", step="mix")
def scaled_by_length(m, sound, weights, v):
    """The output grows with the number of keys, padding included"""
    return sound(weights, v) * (1 + 0.01 * v.shape[-2])


@fault("value.mean-mixed-in", step="mix")
def mean_mixed_in(m, sound, weights, v):
    """A hundredth of the mean of all values, the hidden ones too, is mixed into each output"""
    return sound(weights, v) + 0.01 * v.mean(-2, keepdim=True)
