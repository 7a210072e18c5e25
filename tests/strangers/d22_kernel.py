"""Reference attention used by the tests of the fused kernels. Written with bmm on purpose."""
import torch


def _fold(x):
    # (batch, heads, length, dim) -> (batch * heads, length, dim)
    return x.reshape(-1, x.shape[-2], x.shape[-1])


def attention(q, k, v, mask=None, causal=False):
    """softmax(q k^T / sqrt(d)) v

    q: (batch, heads, q_len, d)
    k, v: (batch, heads, k_len, d)
    mask: optional bool, (batch, q_len, k_len) or (q_len, k_len). True = attend.
    causal: a query sees the keys up to its own position, counted from the end of both.
    """
    batch, heads, q_len, dim = q.shape
    k_len = k.shape[-2]

    scores = torch.bmm(_fold(q), _fold(k).transpose(1, 2))
    scores = scores * dim ** -0.5

    if causal:
        visible = torch.ones(q_len, k_len, dtype=torch.bool, device=q.device).tril(k_len - q_len)
        scores = scores.masked_fill(~visible, float("-inf"))
    if mask is not None:
        if mask.dim() == 2:
            mask = mask.expand(batch, q_len, k_len)
        mask = mask.repeat_interleave(heads, dim=0)
        scores = scores.masked_fill(~mask, float("-inf"))

    probs = torch.softmax(scores, dim=-1)
    out = torch.bmm(probs, _fold(v))
    return out.view(batch, heads, q_len, v.shape[-1])
