"""Faults of shapes and of inputs that change; `m` is the broken module, `sound` the step as it should be."""

import torch
import torch.nn.functional as F

from attncheck_faults.record import fault


@fault("shape.single-query-doubled", step="output", bugs=("B066",))
def single_query(m, sound, merged):
    """The output of a single query is repeated to two positions"""
    output = sound(merged)
    return output if output.shape[1] > 1 else output.expand(-1, 2, -1)


@fault("shape.squeezes-batch", step="output")
def squeezes_batch(m, sound, merged):
    """A batch of one loses its batch axis"""
    return sound(merged).squeeze(0)


@fault("shape.squeezes-time", step="output")
def squeezes_time(m, sound, merged):
    """A sequence of one loses its time axis"""
    return sound(merged).squeeze(1)


@fault("shape.other-dtype", step="output")
def other_dtype(m, sound, merged):
    """The output comes back in float64"""
    return sound(merged).double()


@fault("inputs.query-scaled-in-place", step="project", bugs=("B091",))
def query_scaled(m, sound, query, key, value):
    """The caller's query is scaled in place"""
    with torch.no_grad():
        query.mul_(0.5)
    return sound(query, key, value)


@fault("inputs.mask-inverted-in-place", step="attend")
def mask_inverted(m, sound, q, k, v, allowed, bias):
    """The caller's mask is inverted in place"""
    result = sound(q, k, v, allowed, bias)
    if allowed is not None:
        allowed.logical_not_()
    return result


@fault("inputs.parameter-decays", step="output")
def parameter_decays(m, sound, merged):
    """Each call shrinks the output projection a little"""
    output = F.linear(merged, m.o.weight.clone(), m.o.bias)
    with torch.no_grad():
        m.o.weight.mul_(0.999)
    return output


@fault("shape.extra-features-cut", step="forward")
def extra_cut(m, sound, query, key=None, value=None, allowed=None, bias=None, need_weights=False):
    """A query that is too wide is cut to the width that fits"""
    return sound(query[..., : m.width], key, value, allowed, bias, need_weights)


@fault("shape.cut-to-longest", step="forward", bugs=("B004",))
def cut_to_longest(m, sound, query, key=None, value=None, allowed=None, bias=None, need_weights=False):
    """Under a padding mask the output is as long as the longest sample, and not as the batch"""
    output, weights = sound(query, key, value, allowed, bias, need_weights)
    padding = allowed is not None and allowed.ndim == 4 and allowed.shape[-2] == 1
    if not padding or allowed.shape[-1] != query.shape[1]:
        return output, weights
    longest = int(allowed.any(0).flatten().nonzero().max()) + 1
    return output[:, :longest], weights
