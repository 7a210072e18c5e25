import math
from typing import Optional, Tuple, Union

import torch
from torch import Tensor


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    return_attn_probs: bool = False,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """Eager fallback with the interface of the flash kernels. dropout_p should be 0.0 in evaluation.

    Supports grouped queries: nheads must be a multiple of nheads_k, and query heads
    0 .. g - 1 share key head 0, the next g share key head 1 and so on.

    If causal, or if a window is set, queries and keys are aligned at the end: with
    seqlen_q = 2 and seqlen_k = 5, query 0 has position 3. A row without any key gives zeros.
    Query i sees the keys in [i + seqlen_k - seqlen_q - left, i + seqlen_k - seqlen_q + right].

    Arguments:
        q: (batch_size, seqlen_q, nheads, headdim)
        k, v: (batch_size, seqlen_k, nheads_k, headdim)
        softmax_scale: defaults to 1 / sqrt(headdim).
        window_size: (left, right), -1 for no limit.
        softcap: scores become softcap * tanh(scores / softcap) if positive.
    Return:
        out: (batch_size, seqlen_q, nheads, headdim)
        probs: (batch_size, nheads, seqlen_q, seqlen_k), if asked for
    """
    batch, seqlen_q, nheads, headdim = q.shape
    seqlen_k, nheads_k = k.shape[1], k.shape[2]
    if softmax_scale is None:
        softmax_scale = 1.0 / math.sqrt(headdim)
    groups = nheads // nheads_k
    if groups > 1:
        k = k.repeat_interleave(groups, dim=2)
        v = v.repeat_interleave(groups, dim=2)

    scores = torch.einsum("bthd,bshd->bhts", q.float(), k.float()) * softmax_scale
    if softcap > 0.0:
        scores = softcap * torch.tanh(scores / softcap)

    left, right = window_size
    if causal:
        right = 0
    row = torch.arange(seqlen_q, device=q.device)[:, None] + seqlen_k - seqlen_q
    col = torch.arange(seqlen_k, device=q.device)[None, :]
    hidden = torch.zeros(seqlen_q, seqlen_k, dtype=torch.bool, device=q.device)
    if left >= 0:
        hidden = hidden | (col < row - left)
    if right >= 0:
        hidden = hidden | (col > row + right)
    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)

    probs = torch.softmax(scores, dim=-1).masked_fill(hidden, 0.0)
    dropped = torch.nn.functional.dropout(probs, dropout_p) if dropout_p > 0.0 else probs
    out = torch.einsum("bhts,bshd->bthd", dropped, v.float()).to(q.dtype)
    if return_attn_probs:
        return out, probs.to(q.dtype)
    return out
