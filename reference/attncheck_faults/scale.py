"""Faults of the scale; `m` is the broken module, `sound` the step as it should be."""

import math

import torch

from attncheck_faults.record import fault


@fault("scale.none", step="scale", bugs=("B060", "B264"))
def none(m, sound, scores, d):
    """The scores are not scaled"""
    return scores


@fault("scale.by-model-width", step="scale", bugs=("B058",))
def by_model_width(m, sound, scores, d):
    """The scores are divided by sqrt(D) of the model instead of sqrt(d) of a head"""
    return scores / math.sqrt(d * m.heads)


@fault("scale.by-heads", step="scale", bugs=("B059",))
def by_heads(m, sound, scores, d):
    """The scores are divided by the square root of the number of heads"""
    return scores / math.sqrt(m.heads)


@fault("scale.by-width-not-root", step="scale")
def not_root(m, sound, scores, d):
    """The scores are divided by d instead of sqrt(d), as by a scale that is applied twice"""
    return scores / d


@fault("scale.by-keys", step="scale")
def by_keys(m, sound, scores, d):
    """The scores are divided by the square root of the number of keys"""
    return scores / math.sqrt(scores.shape[-1])


@fault("scale.inverted", step="scale", bugs=("B061",))
def inverted(m, sound, scores, d):
    """The scores are multiplied by sqrt(d) instead of divided"""
    return scores * math.sqrt(d)


@fault("scale.eighth", step="scale", bugs=("B062", "B239"))
def eighth(m, sound, scores, d):
    """The scale is 1/8 whatever the head width, right for d = 64 only"""
    return scores / 8


@fault("scale.only-unequal", step="scale", bugs=("B060",))
def only_unequal(m, sound, scores, d):
    """The scale is left out where there are more or fewer keys than queries"""
    return sound(scores, d) if scores.shape[-1] == scores.shape[-2] else scores


@fault("scale.last-head-twice", step="scale")
def last_head_twice(m, sound, scores, d):
    """The last head's scores are scaled twice"""
    scaled = sound(scores, d)
    return torch.cat((scaled[:, :-1], sound(scaled[:, -1:], d)), 1)


@fault("scale.missing-without-grad", step="scale", bugs=("B060",))
def missing_without_grad(m, sound, scores, d):
    """The scale is left out on the path without gradients"""
    return sound(scores, d) if torch.is_grad_enabled() else scores


@fault("scale.missing-with-weights", step="forward", path="weights", bugs=("B060", "B098"))
def missing_with_weights(m, sound, query, key=None, value=None, allowed=None, bias=None, need_weights=False):
    """The scale is left out where weights are asked for"""
    kept = m.factor
    m.factor = 1.0 if need_weights else kept
    try:
        return sound(query, key, value, allowed, bias, need_weights)
    finally:
        m.factor = kept


@fault("scores.clamped-at-fifty", step="scale")
def clamped_at_fifty(m, sound, scores, d):
    """Scores beyond 50 are cut off"""
    return sound(scores, d).clamp(-50, 50)
