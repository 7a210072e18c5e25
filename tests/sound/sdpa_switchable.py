"""Modern-library style: self-attention around F.scaled_dot_product_attention, keeping that function's conventions. A
boolean attn_mask means True = allowed, a float attn_mask is added to the scores; shape (T, T), (N, T, T) or (N, 1 or
heads, T, T). is_causal=True adds the causal rule, alone or on top of attn_mask; without it the module is not causal. A
row without an allowed key gets a zero context from the kernel, so its output is the bias of out_proj. Dropout acts in
training only. Batch first, (N, T, D) in and out.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True):
        super().__init__()
        if embed_dim % num_heads != 0:
            raise ValueError(f"{num_heads=} does not divide {embed_dim=}")
        self.num_heads = num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(self, x: torch.Tensor, attn_mask: torch.Tensor | None = None, is_causal: bool = False) -> torch.Tensor:
        q, k, v = (
            proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )

        if attn_mask is not None:
            if attn_mask.dtype != torch.bool:
                attn_mask = attn_mask.to(q.dtype)
            if attn_mask.dim() == 3:
                attn_mask = attn_mask.unsqueeze(1)
            if is_causal:
                # the kernel takes one or the other, so merge them
                past = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()
                if attn_mask.dtype == torch.bool:
                    attn_mask = attn_mask & past
                else:
                    attn_mask = attn_mask.masked_fill(~past, float("-inf"))
                is_causal = False

        context = F.scaled_dot_product_attention(
            q, k, v, attn_mask=attn_mask, dropout_p=self.dropout if self.training else 0.0, is_causal=is_causal
        )
        return self.out_proj(context.transpose(1, 2).flatten(2))
