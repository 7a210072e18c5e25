import math
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


class RelPositionalEncoding(nn.Module):
    """Sinusoids of the offsets T-1, ..., 0, ..., -(T-1); shape (1, 2T-1, d_model)"""

    def __init__(self, d_model: int = 512) -> None:
        super().__init__()
        self.d_model = d_model

    def forward(self, x: Tensor) -> Tensor:
        length = x.size(1)
        offsets = torch.arange(length - 1, -length, -1, device=x.device, dtype=torch.float32).unsqueeze(1)
        div_term = torch.exp(
            torch.arange(0, self.d_model, 2, device=x.device, dtype=torch.float32) * -(math.log(10000.0) / self.d_model)
        )
        pe = torch.zeros(2 * length - 1, self.d_model, device=x.device)
        pe[:, 0::2] = torch.sin(offsets * div_term)
        pe[:, 1::2] = torch.cos(offsets * div_term)
        return pe.unsqueeze(0).to(x.dtype)


class RelativeMultiHeadAttention(nn.Module):
    def __init__(self, d_model: int = 512, num_heads: int = 16, dropout_p: float = 0.1) -> None:
        super().__init__()
        assert d_model % num_heads == 0, "d_model % num_heads should be zero."
        self.d_model = d_model
        self.d_head = d_model // num_heads
        self.num_heads = num_heads
        self.sqrt_dim = math.sqrt(self.d_head)

        self.query_proj = nn.Linear(d_model, d_model)
        self.key_proj = nn.Linear(d_model, d_model)
        self.value_proj = nn.Linear(d_model, d_model)
        self.pos_proj = nn.Linear(d_model, d_model, bias=False)

        self.dropout = nn.Dropout(p=dropout_p)
        self.u_bias = nn.Parameter(torch.empty(self.num_heads, self.d_head))
        self.v_bias = nn.Parameter(torch.empty(self.num_heads, self.d_head))
        nn.init.xavier_uniform_(self.u_bias)
        nn.init.xavier_uniform_(self.v_bias)

        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, pos_embedding: Tensor,
                mask: Optional[Tensor] = None) -> Tensor:
        batch_size = value.size(0)

        query = self.query_proj(query).view(batch_size, -1, self.num_heads, self.d_head)
        key = self.key_proj(key).view(batch_size, -1, self.num_heads, self.d_head).permute(0, 2, 1, 3)
        value = self.value_proj(value).view(batch_size, -1, self.num_heads, self.d_head).permute(0, 2, 1, 3)
        pos = self.pos_proj(pos_embedding).view(1, -1, self.num_heads, self.d_head).permute(0, 2, 3, 1)

        content_score = torch.matmul((query + self.u_bias).transpose(1, 2), key.transpose(2, 3))
        pos_score = torch.matmul((query + self.v_bias).transpose(1, 2), pos)
        pos_score = self._relative_shift(pos_score)

        score = (content_score + pos_score) / self.sqrt_dim

        if mask is not None:
            score = score.masked_fill(mask.unsqueeze(1), torch.finfo(score.dtype).min)

        attn = F.softmax(score, -1)
        attn = self.dropout(attn)

        context = torch.matmul(attn, value).transpose(1, 2)
        context = context.contiguous().view(batch_size, -1, self.d_model)
        return self.out_proj(context)

    def _relative_shift(self, pos_score: Tensor) -> Tensor:
        b, h, t, n = pos_score.size()
        padded = torch.cat([pos_score.new_zeros(b, h, t, 1), pos_score], dim=-1)
        padded = padded.view(b, h, n + 1, t)
        return padded[:, :, 1:].view(b, h, t, n)[:, :, :, : n // 2 + 1]


class MultiHeadedSelfAttentionModule(nn.Module):
    """
    Self-attention module of the conformer block: layer norm, attention with relative sinusoidal
    positions, dropout.

    Inputs: inputs, mask
        - **inputs** (batch, time, dim)
        - **mask** (batch, time, time): bool, True at the positions to be masked out
    """

    def __init__(self, d_model: int, num_heads: int, dropout_p: float = 0.1):
        super().__init__()
        self.positional_encoding = RelPositionalEncoding(d_model)
        self.layer_norm = nn.LayerNorm(d_model)
        self.attention = RelativeMultiHeadAttention(d_model, num_heads, dropout_p)
        self.dropout = nn.Dropout(p=dropout_p)

    def forward(self, inputs: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        pos_embedding = self.positional_encoding(inputs)
        inputs = self.layer_norm(inputs)
        outputs = self.attention(inputs, inputs, inputs, pos_embedding=pos_embedding, mask=mask)
        return self.dropout(outputs)
