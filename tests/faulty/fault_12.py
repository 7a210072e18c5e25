import torch


def attention_kernel(q, k, v, attn_mask=None, is_causal=False, scale=None):
    """Reference attention with fp32 internals, to be called where no fused kernel is available.

    q: (B, H, L, D), k and v: (B, H, S, D); result: (B, H, L, D) in the type of q.
    attn_mask: bool, broadcastable to (B, H, L, S), True = take part. is_causal: top left aligned.
    """
    if q.dtype in (torch.float16, torch.bfloat16):
        # products and softmax of half precision inputs are computed in fp32
        q, k, v = q.float(), k.float(), v.float()
    L, S = q.shape[-2], k.shape[-2]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.einsum("bhld,bhsd->bhls", q, k) * scale
    keep = None
    if is_causal:
        keep = torch.ones(L, S, dtype=torch.bool, device=q.device).tril()
    if attn_mask is not None:
        keep = attn_mask if keep is None else keep & attn_mask
    if keep is not None:
        scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
    probs = scores.softmax(dim=-1)
    out = torch.einsum("bhls,bhsd->bhld", probs, v)
    return out.to(q.dtype)
