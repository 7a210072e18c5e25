import torch


def _acc_dtype(t):
    return t.dtype if t.dtype == torch.float64 else torch.float32


def flash_attention_ref(q, k, v, causal=False, softmax_scale=None, block_q=4, block_k=4):
    """Tiled attention with a running softmax, in plain PyTorch.

    q: (batch, heads, seqlen_q, headdim); k, v: (batch, heads, seqlen_k, headdim).
    If causal, the mask is aligned to the bottom right corner (as in flash-attn >= 2.1); a query row
    that sees no key gives zeros.
    """
    B, H, Tq, D = q.shape
    Tk = k.shape[2]
    scale = D ** -0.5 if softmax_scale is None else softmax_scale
    dt = _acc_dtype(q)
    shift = Tk - Tq
    tiles = []
    for qs in range(0, Tq, block_q):
        qi = q[:, :, qs:qs + block_q].to(dt) * scale
        n = qi.shape[2]
        m = qi.new_full((B, H, n, 1), float("-inf"))
        l = qi.new_zeros(B, H, n, 1)
        acc = qi.new_zeros(B, H, n, v.shape[-1])
        rows = torch.arange(qs, qs + n, device=q.device)[:, None]
        for ks in range(0, Tk, block_k):
            if causal and ks > qs + n - 1 + shift:
                break
            kj = k[:, :, ks:ks + block_k].to(dt)
            vj = v[:, :, ks:ks + block_k].to(dt)
            s = qi @ kj.transpose(-1, -2)
            if causal:
                cols = torch.arange(ks, ks + kj.shape[2], device=q.device)[None, :]
                s = s.masked_fill(cols > rows + shift, float("-inf"))
            m_new = torch.maximum(m, s.amax(-1, keepdim=True)).detach()
            m_safe = torch.where(torch.isinf(m_new), torch.zeros_like(m_new), m_new)
            p = torch.exp(s - m_safe)
            alpha = torch.exp(m - m_safe)
            l = l * alpha + p.sum(-1, keepdim=True)
            acc = acc * alpha + p @ vj
            m = m_new
        tiles.append(acc / torch.where(l == 0, torch.ones_like(l), l))
    return torch.cat(tiles, dim=2).to(q.dtype)
