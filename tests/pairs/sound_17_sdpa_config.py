from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class AttentionConfig:
    d_model: int = 32
    num_heads: int = 4
    dropout: float = 0.1
    bias: bool = False


class Attention(nn.Module):
    """Bidirectional attention on top of F.scaled_dot_product_attention.

    attention_mask: (batch, seq) bool, True = token takes part
    """

    def __init__(self, config: AttentionConfig):
        super().__init__()
        self.n_heads = config.num_heads
        self.head_dim = config.d_model // config.num_heads
        self.attn_dropout = config.dropout
        self.Wqkv = nn.Linear(config.d_model, 3 * config.d_model, bias=config.bias)
        self.Wo = nn.Linear(config.d_model, config.d_model, bias=config.bias)

    def forward(self, hidden_states, attention_mask=None):
        bs, seqlen, dim = hidden_states.shape
        qkv = self.Wqkv(hidden_states)
        qkv = qkv.view(bs, seqlen, 3, self.n_heads, self.head_dim)
        q, k, v = qkv.transpose(1, 3).unbind(dim=2)

        if attention_mask is not None:
            attention_mask = attention_mask.bool().view(bs, 1, 1, seqlen)

        attn_output = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=attention_mask,
            dropout_p=self.attn_dropout if self.training else 0.0,
        )
        attn_output = attn_output.transpose(1, 2).reshape(bs, seqlen, dim)
        return self.Wo(attn_output)
