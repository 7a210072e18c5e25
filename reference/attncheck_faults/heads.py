"""Faults of heads: split, merge and sharing; `m` is the broken module, `sound` the step as it should be."""

import torch
import torch.nn.functional as F

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


@fault("heads.first-key-for-all", step="spread", bugs=("B041", "B038"), kv_heads=2)
def first_key(m, sound, x):
    """All query heads read key head 0"""
    return x[:, :1].expand(-1, m.heads, -1, -1)


@fault("heads.width-truncated", step="__init__", bugs=("B266",))
def width_truncated(m, sound, width, heads, kv_heads=None, **settings):
    """A width that the heads do not divide is cut down to one that they do"""
    if width % heads and settings.get("head_width") is None:
        settings |= {"head_width": width // heads, "out_width": width // heads * heads}
    sound(width, heads, kv_heads, **settings)


@fault("heads.see-own-slice", step="project", bugs=("B052",))
def own_slice(m, sound, query, key, value):
    """Each head projects its own slice of the features, and not all of them"""
    made = []
    for x, linear, heads in ((query, m.q, m.heads), (key, m.k, m.kv_heads), (value, m.v, m.kv_heads)):
        weight = linear.weight
        own = torch.ones(heads, weight.shape[0] // heads, max(weight.shape[1] // heads, 1)).to(weight)
        own = torch.block_diag(*own)
        missing = weight.shape[1] - own.shape[1]
        made.append(F.linear(x, weight * F.pad(own, (0, missing), value=1.0), linear.bias))
    return tuple(made)


@fault("heads.groups-along-time", step="spread", bugs=("B040",), kv_heads=2)
def along_time(m, sound, x):
    """Grouped keys are repeated along time instead of along the heads"""
    N, g, S, d = x.shape
    return x.repeat_interleave(m.heads // g, dim=2).reshape(N, m.heads, S, d)


@fault("heads.attended-over", step="attend", bugs=("B121", "B254"))
def attended_over(m, sound, q, k, v, allowed, bias):
    """Heads and time are exchanged, so that a token attends to its own heads"""
    if allowed is not None or bias is not None or q.shape[:3] != k.shape[:3]:
        return sound(q, k, v, allowed, bias)
    weights = m.softmax(m.scale(q.transpose(1, 2) @ k.transpose(1, 2).mT, q.shape[-1]))
    return m.mix(weights, v.transpose(1, 2)).transpose(1, 2), sound(q, k, v, allowed, bias)[1]


@fault("heads.normalised-together", step="score", bugs=("B260",))
def normalised_together(m, sound, q, k):
    """Queries are normalised over all heads together"""
    return sound(q / q.square().mean((1, 3), keepdim=True).sqrt(), k)
