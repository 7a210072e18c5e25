"""Attention in O(sqrt(n)) memory: keys are visited block by block with a running softmax."""
import torch
import torch.nn.functional as F


def _pad_to(x, multiple, dim):
    missing = -x.shape[dim] % multiple
    if missing == 0:
        return x
    pad = [0, 0] * (x.dim() - 1 - dim % x.dim()) + [0, missing]
    return F.pad(x, pad)


def chunked_attention(query, key, value, bias=None, *, scale=None, key_chunk_size=64):
    """
    query: [batch, heads, n, d]
    key:   [batch, heads, m, d]
    value: [batch, heads, m, e]
    bias:  [batch or 1, heads or 1, n, m], added to the scaled scores (-inf leaves a key out)
    """
    n, m = query.shape[-2], key.shape[-2]
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    query = query * scale

    key = _pad_to(key, key_chunk_size, -2)
    value = _pad_to(value, key_chunk_size, -2)
    if bias is not None:
        bias = _pad_to(bias.expand(-1, -1, n, m), key_chunk_size, -1)
    real = torch.arange(key.shape[-2], device=key.device) < m

    acc = query.new_zeros(*query.shape[:-1], value.shape[-1])
    norm = query.new_zeros(*query.shape[:-1], 1)
    top = query.new_full((*query.shape[:-1], 1), torch.finfo(query.dtype).min)

    for start in range(0, key.shape[-2], key_chunk_size):
        block = slice(start, start + key_chunk_size)
        scores = query @ key[..., block, :].transpose(-1, -2)
        if bias is not None:
            scores = scores + bias[..., block]
        scores = scores.masked_fill(~real[block], float("-inf"))

        new_top = torch.maximum(top, scores.amax(dim=-1, keepdim=True)).detach()
        weights = torch.exp(scores - new_top)
        shrink = torch.exp(top - new_top)
        acc = acc * shrink + weights @ value[..., block, :]
        norm = norm * shrink + weights.sum(dim=-1, keepdim=True)
        top = new_top

    return acc / norm
