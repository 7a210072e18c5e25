from typing import Optional

import torch
import torch.nn.functional as F
from torch import nn


class MistralStyleAttention(nn.Module):
    """Causal self attention, separate projections, 2-D padding mask as given by the tokenizer."""

    def __init__(self, hidden_size: int, num_heads: int, num_key_value_heads: Optional[int] = None,
                 attention_dropout: float = 0.0):
        super().__init__()
        self.num_heads = num_heads
        self.num_key_value_heads = num_key_value_heads or num_heads
        self.head_dim = hidden_size // num_heads
        self.attention_dropout = attention_dropout
        self.q_proj = nn.Linear(hidden_size, num_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden_size, self.num_key_value_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden_size, self.num_key_value_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * self.head_dim, hidden_size, bias=False)

    def _prepare_mask(self, attention_mask, bsz, seq_len, dtype, device):
        min_value = torch.finfo(dtype).min
        mask = torch.full((seq_len, seq_len), min_value, dtype=dtype, device=device).triu(1)
        mask = mask[None, None].expand(bsz, 1, seq_len, seq_len)
        # padding only appears when several sequences are batched together
        if attention_mask is not None and bsz > 1:
            padding = (attention_mask == 0)[:, None, None, :]
            mask = mask.masked_fill(padding, min_value)
        return mask

    def forward(self, hidden_states: torch.Tensor, attention_mask: Optional[torch.Tensor] = None):
        bsz, seq_len, _ = hidden_states.shape
        q = self.q_proj(hidden_states).view(bsz, seq_len, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(hidden_states).view(bsz, seq_len, self.num_key_value_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(hidden_states).view(bsz, seq_len, self.num_key_value_heads, self.head_dim).transpose(1, 2)
        groups = self.num_heads // self.num_key_value_heads
        k = k.repeat_interleave(groups, dim=1)
        v = v.repeat_interleave(groups, dim=1)

        scores = torch.matmul(q, k.transpose(2, 3)) * self.head_dim ** -0.5
        scores = scores + self._prepare_mask(attention_mask, bsz, seq_len, scores.dtype, scores.device)
        probs = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        probs = F.dropout(probs, p=self.attention_dropout, training=self.training)
        out = torch.matmul(probs, v).transpose(1, 2).reshape(bsz, seq_len, -1)
        return self.o_proj(out)
