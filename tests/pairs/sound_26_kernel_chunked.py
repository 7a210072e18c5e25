import torch


def chunked_attention(q, k, v, causal=False, chunk_size=4):
    """Exact attention that walks over the keys in chunks (online softmax).

    q: (B, H, L, D), k: (B, H, S, D), v: (B, H, S, Dv). Never materialises the L x S matrix.
    With causal=True, query i sees keys j <= i.
    """
    B, H, L, D = q.shape
    S = k.size(2)
    q = q * D ** -0.5

    running_max = q.new_full((B, H, L, 1), float("-inf"))
    running_sum = q.new_zeros(B, H, L, 1)
    acc = q.new_zeros(B, H, L, v.size(-1))
    rows = torch.arange(L, device=q.device)[:, None]

    for start in range(0, S, chunk_size):
        stop = min(start + chunk_size, S)
        scores = q @ k[:, :, start:stop].transpose(-2, -1)
        if causal:
            cols = torch.arange(start, stop, device=q.device)[None, :]
            scores = scores.masked_fill(cols > rows, float("-inf"))

        new_max = torch.maximum(running_max, scores.amax(dim=-1, keepdim=True))
        correction = torch.exp(running_max - new_max)
        p = torch.exp(scores - new_max)

        running_sum = running_sum * correction + p.sum(dim=-1, keepdim=True)
        acc = acc * correction + p @ v[:, :, start:stop]
        running_max = new_max

    return acc / running_sum
