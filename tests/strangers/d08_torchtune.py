from typing import Optional

import torch
from torch import nn


class RotaryPositionalEmbeddings(nn.Module):
    """
    Rotary positional embeddings over adjacent pairs, with cos/sin cached up to ``max_seq_len``.
    """

    def __init__(self, dim: int, max_seq_len: int = 4096, base: int = 10_000) -> None:
        super().__init__()
        theta = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        idx_theta = torch.outer(torch.arange(max_seq_len).float(), theta)
        cache = torch.stack([torch.cos(idx_theta), torch.sin(idx_theta)], dim=-1)
        self.register_buffer("cache", cache, persistent=False)

    def forward(self, x: torch.Tensor, *, input_pos: Optional[torch.Tensor] = None) -> torch.Tensor:
        # x: [b, s, n_h, h_d]
        seq_len = x.size(1)
        rope_cache = self.cache[:seq_len] if input_pos is None else self.cache[input_pos]
        xshaped = x.float().reshape(*x.shape[:-1], -1, 2)
        rope_cache = rope_cache.view(-1, seq_len, 1, xshaped.size(3), 2)
        cos, sin = rope_cache[..., 0], rope_cache[..., 1]
        even, odd = xshaped[..., 0], xshaped[..., 1]
        x_out = torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1)
        return x_out.flatten(3).type_as(x)


class MultiHeadAttention(nn.Module):
    """Attention with grouped keys and values; all layers are handed in by the builder."""

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        q_proj: nn.Module,
        k_proj: nn.Module,
        v_proj: nn.Module,
        output_proj: nn.Module,
        pos_embeddings: Optional[nn.Module] = None,
        is_causal: bool = True,
        attn_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if num_heads % num_kv_heads != 0:
            raise ValueError(f"num_heads ({num_heads}) % num_kv_heads ({num_kv_heads}) must be 0")
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.attn_dropout = attn_dropout
        self.is_causal = is_causal
        self.q_proj, self.k_proj, self.v_proj, self.output_proj = q_proj, k_proj, v_proj, output_proj
        self.pos_embeddings = pos_embeddings

    def forward(
        self,
        x: torch.Tensor,
        y: Optional[torch.Tensor] = None,
        *,
        mask: Optional[torch.Tensor] = None,
        input_pos: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """
        Args:
            x (torch.Tensor): [b x s_x x d], the queries.
            y (Optional[torch.Tensor]): [b x s_y x d], keys and values. ``x`` if None.
            mask (Optional[torch.Tensor]): boolean [b x s_x x s_y]; True in row i and column j means that
                token i attends to token j. A causal mask is used if None.
            input_pos (Optional[torch.Tensor]): [b x s] position ids of the tokens.
        """
        b, s_x, _ = x.shape
        y = x if y is None else y
        s_y = y.shape[1]
        q = self.q_proj(x).view(b, s_x, self.num_heads, self.head_dim)
        k = self.k_proj(y).view(b, s_y, self.num_kv_heads, self.head_dim)
        v = self.v_proj(y).view(b, s_y, self.num_kv_heads, self.head_dim)
        if self.pos_embeddings is not None:
            q = self.pos_embeddings(q, input_pos=input_pos)
            k = self.pos_embeddings(k, input_pos=input_pos)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

        # [b, n_kv, s, h_d] -> [b, n_h, s, h_d]
        if self.num_heads != self.num_kv_heads:
            q_per_kv = self.num_heads // self.num_kv_heads
            k, v = (t.unsqueeze(2).expand(-1, -1, q_per_kv, -1, -1).flatten(1, 2) for t in (k, v))

        output = nn.functional.scaled_dot_product_attention(
            q, k, v,
            attn_mask=None if mask is None else mask[:, None, :, :],
            dropout_p=self.attn_dropout if self.training else 0.0,
            is_causal=self.is_causal and mask is None,
        )
        return self.output_proj(output.transpose(1, 2).contiguous().view(b, s_x, -1))


def grouped_self_attention(
    embed_dim: int = 128,
    num_heads: int = 8,
    num_kv_heads: int = 2,
    max_seq_len: int = 1024,
    attn_dropout: float = 0.0,
    rope_base: int = 10_000,
) -> MultiHeadAttention:
    """Build the self-attention of a decoder layer."""
    head_dim = embed_dim // num_heads
    return MultiHeadAttention(
        embed_dim=embed_dim,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        q_proj=nn.Linear(embed_dim, num_heads * head_dim, bias=False),
        k_proj=nn.Linear(embed_dim, num_kv_heads * head_dim, bias=False),
        v_proj=nn.Linear(embed_dim, num_kv_heads * head_dim, bias=False),
        output_proj=nn.Linear(embed_dim, embed_dim, bias=False),
        pos_embeddings=RotaryPositionalEmbeddings(head_dim, max_seq_len=max_seq_len, base=rope_base),
        attn_dropout=attn_dropout,
    )
