import math

import torch


def softmax_1(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """exp(x_i) / (1 + sum_j exp(x_j)), computed safely."""
    shift = x.amax(dim=dim, keepdim=True).clamp(min=0).detach()
    e = torch.exp(x - shift)
    return e / (torch.exp(-shift) + e.sum(dim=dim, keepdim=True))


def quiet_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, training=False):
    """
    Drop-in for F.scaled_dot_product_attention with the "quiet" softmax of Evan Miller's
    "Attention Is Off By One": a head may say nothing.

    q (..., L, E), k (..., S, E), v (..., S, Ev). A bool attn_mask is True where a pair takes part,
    a float one is added to the scores.
    """
    L, S = q.size(-2), k.size(-2)
    scale_factor = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    logits = q @ k.transpose(-2, -1) * scale_factor
    if is_causal:
        assert attn_mask is None
        attn_mask = torch.ones(L, S, dtype=torch.bool, device=q.device).tril(diagonal=0)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            logits = logits.masked_fill(attn_mask.logical_not(), float("-inf"))
        else:
            logits = logits + attn_mask
    weight = softmax_1(logits)
    weight = torch.dropout(weight, dropout_p, train=training)
    return weight @ v
