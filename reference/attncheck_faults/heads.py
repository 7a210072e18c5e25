"""Faults of heads: split, merge and sharing; `m` is the broken module, `sound` the step as it should be."""

import torch

from attncheck_faults.record import fault


@fault("heads.split-by-view", step="split", bugs=("B048",))
def split_by_view(m, sound, x, heads):
    """Heads are cut by a plain view without transposing, so that a head mixes time steps"""
    N, T, E = x.shape
    return x.reshape(N, heads, T, E // heads)


@fault("heads.merged-without-transpose", step="merge", bugs=("B049",))
def merged(m, sound, mixed):
    """Heads are merged without transposing back, so that a token gets pieces of other tokens"""
    N, h, T, e = mixed.shape
    return mixed.reshape(N, T, h * e)


@fault("heads.batch-merged", step="merge", bugs=("B050",))
def batch_merged(m, sound, mixed):
    """Head-major batches are merged as if they were sample-major, so that samples interleave"""
    N, h, T, e = mixed.shape
    return sound(mixed.transpose(0, 1).reshape(N, h, T, e))


@fault("heads.tiled-groups", step="spread", bugs=("B039",), kv_heads=2)
def tiled(m, sound, x):
    """Grouped keys are tiled: query head i reads key head i mod g instead of i // (h / g)"""
    return x.repeat(1, m.heads // m.kv_heads, 1, 1)


@fault("heads.last-dropped", step="merge")
def last_dropped(m, sound, mixed):
    """The last head's output is lost"""
    return sound(torch.cat((mixed[:, :-1], torch.zeros_like(mixed[:, -1:])), 1))


@fault("heads.reversed", step="merge")
def reversed_(m, sound, mixed):
    """Heads are concatenated in reverse order"""
    return sound(mixed.flip(1))


@fault("heads.first-repeated", step="merge", bugs=("B239",))
def first_repeated(m, sound, mixed):
    """Every head reads head 0"""
    return sound(mixed[:, :1].expand_as(mixed))


@fault("heads.averaged", step="merge")
def averaged(m, sound, mixed):
    """Heads are averaged instead of concatenated"""
    return sound(mixed.mean(1, keepdim=True).expand_as(mixed))


@fault("heads.first-key-for-all", step="spread", bugs=("B041",), kv_heads=2)
def first_key(m, sound, x):
    """All query heads read key head 0"""
    return x[:, :1].expand(-1, m.heads, -1, -1)
