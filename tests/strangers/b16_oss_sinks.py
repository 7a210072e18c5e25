import math
from dataclasses import dataclass

import torch

# Attention with one learned sink logit per head: it takes part in the softmax and
# then contributes nothing, so a head can look "nowhere".


@dataclass
class ModelConfig:
    hidden_size: int = 360
    head_dim: int = 32
    num_attention_heads: int = 12
    num_key_value_heads: int = 3
    sliding_window: int = 0
    rope_theta: float = 150000.0


def sdpa(Q, K, V, S, sm_scale, sliding_window=0):
    # Q: [tokens, kv heads, q per kv, dim]; K, V: [tokens, kv heads, dim]; S: [heads]
    n_tokens, n_heads, q_mult, d_head = Q.shape
    assert K.shape == (n_tokens, n_heads, d_head)
    assert V.shape == (n_tokens, n_heads, d_head)
    K = K[:, :, None, :].expand(-1, -1, q_mult, -1)
    V = V[:, :, None, :].expand(-1, -1, q_mult, -1)
    S = S.reshape(n_heads, q_mult, 1, 1).expand(-1, -1, n_tokens, -1)
    mask = torch.triu(Q.new_full((n_tokens, n_tokens), -float("inf")), diagonal=1)
    if sliding_window > 0:
        mask = mask + torch.tril(mask.new_full((n_tokens, n_tokens), -float("inf")), diagonal=-sliding_window)
    QK = torch.einsum("qhmd,khmd->hmqk", Q, K)
    QK = QK * sm_scale
    QK = QK + mask[None, None, :, :]
    QK = torch.cat([QK, S.to(QK.dtype)], dim=-1)
    W = torch.softmax(QK, dim=-1)
    W = W[..., :-1]
    attn = torch.einsum("hmqk,khmd->qhmd", W, V)
    return attn.reshape(n_tokens, -1)


class RotaryEmbedding(torch.nn.Module):
    def __init__(self, head_dim, base):
        super().__init__()
        self.head_dim = head_dim
        self.base = base

    def forward(self, x):
        # x: [tokens, ..., dim]
        n = x.shape[0]
        freq = self.base ** (-torch.arange(0, self.head_dim, 2, dtype=torch.float, device=x.device) / self.head_dim)
        ang = torch.outer(torch.arange(n, dtype=torch.float, device=x.device), freq)
        shape = (n,) + (1,) * (x.dim() - 2) + (self.head_dim // 2,)
        cos, sin = ang.cos().view(shape).to(x.dtype), ang.sin().view(shape).to(x.dtype)
        x1, x2 = torch.chunk(x, 2, dim=-1)
        return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)


class AttentionBlock(torch.nn.Module):
    """Works on one unbatched sequence of shape [tokens, hidden]; causal."""

    def __init__(self, config: ModelConfig, layer_idx: int = 0, device=None):
        super().__init__()
        self.head_dim = config.head_dim
        self.num_attention_heads = config.num_attention_heads
        self.num_key_value_heads = config.num_key_value_heads
        # every other layer is local
        self.sliding_window = config.sliding_window if layer_idx % 2 == 0 else 0
        self.sinks = torch.nn.Parameter(torch.randn(config.num_attention_heads, device=device))
        qkv_dim = config.head_dim * (config.num_attention_heads + 2 * config.num_key_value_heads)
        self.qkv = torch.nn.Linear(config.hidden_size, qkv_dim, device=device)
        self.out = torch.nn.Linear(config.head_dim * config.num_attention_heads, config.hidden_size, device=device)
        self.sm_scale = 1 / math.sqrt(config.head_dim)
        self.rope = RotaryEmbedding(config.head_dim, config.rope_theta)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n_q = self.num_attention_heads * self.head_dim
        n_kv = self.num_key_value_heads * self.head_dim
        q, k, v = self.qkv(x).split([n_q, n_kv, n_kv], dim=-1)

        q = q.view(-1, self.num_key_value_heads, self.num_attention_heads // self.num_key_value_heads, self.head_dim)
        k = k.view(-1, self.num_key_value_heads, self.head_dim)
        v = v.view(-1, self.num_key_value_heads, self.head_dim)
        q, k = self.rope(q), self.rope(k)
        t = sdpa(q, k, v, self.sinks, self.sm_scale, self.sliding_window)
        return self.out(t)
