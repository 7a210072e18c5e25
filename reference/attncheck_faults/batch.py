"""Faults that mix samples, and tokens that know their place; `m` is the broken module, `sound` the right step."""

import torch

from attncheck_faults.record import fault


@fault("batch.as-time", step="forward", bugs=("B079",))
def as_time(m, sound, query, key, value, allowed=None, bias=None, need_weights=False):
    """The batch axis is attended over instead of time"""
    if query.shape[:2] != key.shape[:2]:
        return sound(query, key, value, allowed, bias, need_weights)
    output, weights = sound(*(x.transpose(0, 1) for x in (query, key, value)), None, None, need_weights)
    return output.transpose(0, 1), weights


@fault("batch.mean-of-samples", step="mix")
def mean_of_samples(m, sound, weights, v):
    """A hundredth of the other samples' mean is mixed into each sample"""
    return sound(weights, v + 0.01 * v.mean(0, keepdim=True))


@fault("batch.first-keys-for-all", step="spread", bugs=("B118",))
def first_keys(m, sound, x):
    """All samples read the keys and values of the first"""
    return sound(x[:1].expand_as(x))


@fault("positions.added", step="project", bugs=("B158",))
def added(m, sound, query, key, value):
    """A ramp over positions is added to the keys"""
    q, k, v = sound(query, key, value)
    return q, k + torch.arange(k.shape[1]).to(k)[:, None], v


@fault("batch.memory-cut", step="forward")
def memory_cut(m, sound, query, key=None, value=None, allowed=None, bias=None, need_weights=False):
    """A memory of more samples than the query is cut to fit"""
    key, value = (x if x is None else x[: len(query)] for x in (key, value))
    return sound(query, key, value, allowed, bias, need_weights)


@fault("positions.added-under-mask", step="attend")
def added_under_mask(m, sound, q, k, v, allowed, bias):
    """A ramp over positions is added to the keys as soon as there is a mask"""
    ramp = torch.arange(k.shape[-2]).to(k)[:, None] * 0.1
    return sound(q, k if allowed is None and bias is None else k + ramp, v, allowed, bias)


@fault("positions.added-to-memory", step="attend")
def added_to_memory(m, sound, q, k, v, allowed, bias):
    """A ramp over positions is added to the keys of a memory of another length than the queries"""
    ramp = torch.arange(k.shape[-2]).to(k)[:, None] * 0.1
    return sound(q, k if q.shape[-2] == k.shape[-2] else k + ramp, v, allowed, bias)


@fault("positions.absent", step="project", bugs=("B102", "B158"), declare={"positions": "absolute"})
def absent(m, sound, query, key, value):
    """Positions are declared, and never added"""
    return sound(query, key, value)
