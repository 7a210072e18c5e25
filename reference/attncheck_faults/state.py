"""Faults of what a module keeps, and of memory layout; `m` is the broken module, `sound` the right step."""

import math

from attncheck_faults.record import fault


@fault("state.copy-forgets-causality", step="__getstate__", bugs=("B234",), causal=True)
def copy_forgets(m, sound):
    """A copy of the module is no longer causal"""
    return {**sound(), "causal": False}


@fault("state.not-saved", step="state_dict", bugs=("B112",))
def not_saved(m, sound, *args, **kwargs):
    """The bias of the output is missing from the saved state"""
    return {k: v for k, v in sound(*args, **kwargs).items() if k != "o.bias"}


@fault("state.mask-remembered", step="attend")
def mask_remembered(m, sound, q, k, v, allowed, bias):
    """A mask is kept for later calls of the same lengths without one"""
    if allowed is not None:
        m.kept = allowed[:1] if allowed.ndim == 4 else allowed
    elif bias is None and getattr(m, "kept", None) is not None and m.kept.shape[-2:] == (q.shape[-2], k.shape[-2]):
        allowed = m.kept if m.kept.ndim == 2 else m.kept[:, :1]
    return sound(q, k, v, allowed, bias)


@fault("state.memory-remembered", step="project", bugs=("B171", "B268"))
def memory_remembered(m, sound, query, key, value):
    """Keys and values of a memory are kept by its shape, and used again for another memory"""
    q, k, v = sound(query, key, value)
    kept = m.__dict__.setdefault("memories", {})
    return q, *kept.setdefault((k.shape, k.dtype), (k.detach(), v.detach()))


@fault("strides.query-read-as-contiguous", step="project", bugs=("B091", "B239"))
def query_as_contiguous(m, sound, query, key, value):
    """The query is read from memory as if it were contiguous"""
    return sound(as_contiguous(query), key, value)


@fault("strides.mask-read-as-contiguous", step="mask", bugs=("B091",))
def mask_as_contiguous(m, sound, scores, allowed):
    """The mask is read from memory as if it were contiguous"""
    dense = allowed is None or 0 in allowed.stride()
    return sound(scores, allowed if dense else as_contiguous(allowed))


def as_contiguous(x):
    strides = [math.prod(x.shape[i + 1 :]) for i in range(x.ndim)]
    return x.as_strided(x.shape, strides, x.storage_offset())
