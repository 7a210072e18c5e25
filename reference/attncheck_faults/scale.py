"""Faults of the scale; `m` is the broken module, `sound` the step as it should be."""

import math

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
