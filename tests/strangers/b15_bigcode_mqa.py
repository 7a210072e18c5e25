"""Multi-query attention for code models (starcoder family), flattened for speed.

With one key head the heads can be folded into the query length, so that a single bmm
computes all scores.
"""
from typing import NamedTuple, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F


class MQAOutput(NamedTuple):
    hidden_states: torch.Tensor
    present_key_value: Optional[torch.Tensor]
    attentions: Optional[torch.Tensor]


class GPTBigCodeConfig:
    model_type = "gpt_bigcode"

    def __init__(
        self,
        n_embd: int = 512,
        n_head: int = 8,
        multi_query: bool = True,
        scale_attn_weights: bool = True,
        attention_softmax_in_fp32: bool = True,
        attn_pdrop: float = 0.0,
        resid_pdrop: float = 0.0,
        **kwargs,
    ):
        self.n_embd = n_embd
        self.n_head = n_head
        self.multi_query = multi_query
        self.scale_attn_weights = scale_attn_weights
        self.attention_softmax_in_fp32 = attention_softmax_in_fp32
        self.attn_pdrop = attn_pdrop
        self.resid_pdrop = resid_pdrop
        self.extra = kwargs

    hidden_size = property(lambda self: self.n_embd)
    num_attention_heads = property(lambda self: self.n_head)


class GPTBigCodeAttention(nn.Module):
    def __init__(self, config: GPTBigCodeConfig, layer_idx: Optional[int] = None):
        super().__init__()
        if not config.multi_query:
            raise NotImplementedError("only the multi-query variant lives here")
        self.layer_idx = layer_idx
        self.embed_dim = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.head_dim = self.embed_dim // self.num_heads
        self.kv_dim = self.head_dim
        self.softmax_dtype = torch.float32 if config.attention_softmax_in_fp32 else None
        self.scale = self.head_dim**-0.5 if config.scale_attn_weights else 1.0

        self.c_attn = nn.Linear(self.embed_dim, self.embed_dim + 2 * self.kv_dim)
        self.c_proj = nn.Linear(self.embed_dim, self.embed_dim)
        self.attn_dropout = nn.Dropout(config.attn_pdrop)
        self.resid_dropout = nn.Dropout(config.resid_pdrop)

    def _attn(self, query, key, value, attention_mask=None):
        # query (b, t, h * d), key and value (b, s, d)
        b, t, _ = query.shape
        s = key.size(1)
        query = query.reshape(b, t * self.num_heads, self.head_dim)
        scores = torch.bmm(query, key.transpose(1, 2)) * self.scale
        scores = scores.view(b, t, self.num_heads, s)

        if attention_mask is not None:
            fill = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(~attention_mask.unsqueeze(2), fill)
        weights = F.softmax(scores, dim=-1, dtype=self.softmax_dtype).to(value.dtype)
        weights = self.attn_dropout(weights)

        context = torch.bmm(weights.view(b, t * self.num_heads, s), value)
        return context.view(b, t, self.embed_dim), weights

    def forward(
        self,
        hidden_states: torch.Tensor,
        layer_past: Optional[torch.Tensor] = None,
        attention_mask: Optional[torch.Tensor] = None,
        use_cache: bool = False,
        output_attentions: bool = False,
    ) -> MQAOutput:
        """
        hidden_states: (batch, length, n_embd)
        layer_past: (batch, past, 2 * head_dim), keys and values side by side
        attention_mask: bool (batch, length, past + length), True = may attend
        """
        query, key_value = self.c_attn(hidden_states).split((self.embed_dim, 2 * self.kv_dim), dim=2)
        if layer_past is not None:
            key_value = torch.cat((layer_past, key_value), dim=1)
        key, value = key_value.split((self.head_dim, self.head_dim), dim=-1)

        context, weights = self._attn(query, key, value, attention_mask)
        context = self.resid_dropout(self.c_proj(context))

        return MQAOutput(
            hidden_states=context,
            present_key_value=key_value if use_cache else None,
            # reported as (batch, heads, length, keys)
            attentions=weights.transpose(1, 2) if output_attentions else None,
        )
