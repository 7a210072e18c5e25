"""Pure PyTorch stand-in for the fused attention layer, for machines without the extension."""
import math
from typing import Optional

import torch
from torch import nn

AttnMaskTypes = ("no_mask", "padding", "causal", "padding_causal", "arbitrary")


class DotProductAttention(nn.Module):
    """softmax(q k^T) v for tensors laid out `[sequence, batch, heads, channels]` ("sbhd").

    attention_mask: boolean, broadcastable to `[b, h, sq, skv]`. `True` means the position
    is masked out and does not take part in the softmax.
    """

    def __init__(self, num_attention_heads: int, kv_channels: int, attention_dropout: float = 0.0,
                 softmax_scale: Optional[float] = None) -> None:
        super().__init__()
        self.num_attention_heads = num_attention_heads
        self.softmax_scale = softmax_scale or 1.0 / math.sqrt(kv_channels)
        self.attention_dropout = nn.Dropout(attention_dropout)

    def forward(self, query_layer, key_layer, value_layer, attention_mask=None,
                attn_mask_type: str = "no_mask", core_attention_bias=None):
        sq, batch_size = query_layer.shape[:2]
        skv = key_layer.shape[0]
        query_layer = query_layer.permute(1, 2, 0, 3)
        key_layer = key_layer.permute(1, 2, 3, 0)
        value_layer = value_layer.permute(1, 2, 0, 3)

        attention_scores = torch.matmul(query_layer, key_layer) * self.softmax_scale
        if core_attention_bias is not None:
            attention_scores = attention_scores + core_attention_bias

        blocked = None
        if attn_mask_type in ("padding", "padding_causal", "arbitrary") and attention_mask is not None:
            blocked = attention_mask.to(torch.bool)
        if attn_mask_type in ("causal", "padding_causal"):
            upper = torch.ones(sq, skv, dtype=torch.bool, device=attention_scores.device).triu(diagonal=1)
            blocked = upper if blocked is None else torch.logical_or(blocked, upper)
        if blocked is not None:
            attention_scores = attention_scores.masked_fill(blocked, -10000.0)

        attention_probs = torch.softmax(attention_scores.float(), dim=-1).to(value_layer.dtype)
        attention_probs = self.attention_dropout(attention_probs)
        context_layer = torch.matmul(attention_probs, value_layer)
        # [b, h, sq, d] -> [sq, b, h * d]
        return context_layer.permute(2, 0, 1, 3).reshape(sq, batch_size, -1)


class MultiheadAttention(nn.Module):
    """Self or cross attention with its input and output projections.

    Parameters
    ----------
    hidden_size : int
                 size of each input sample.
    num_attention_heads : int
                         number of attention heads.
    kv_channels : int, default = `None`
                 number of channels per head, `hidden_size / num_attention_heads` if `None`.
    attention_dropout : float, default = 0.1
    attn_mask_type : str, default = `padding_causal`
                    one of `no_mask`, `padding`, `causal`, `padding_causal`, `arbitrary`;
                    may be overridden in the call.
    attention_type : {'self', 'cross'}, default = 'self'
    """

    def __init__(self, hidden_size: int, num_attention_heads: int, kv_channels: Optional[int] = None,
                 attention_dropout: float = 0.1, attn_mask_type: str = "padding_causal",
                 attention_type: str = "self", bias: bool = True) -> None:
        super().__init__()
        assert attn_mask_type in AttnMaskTypes, f"unsupported attn_mask_type {attn_mask_type}"
        assert attention_type in ("self", "cross")
        self.attn_mask_type = attn_mask_type
        self.attention_type = attention_type
        self.num_attention_heads = num_attention_heads
        self.kv_channels = kv_channels or hidden_size // num_attention_heads
        proj = self.kv_channels * num_attention_heads
        if attention_type == "self":
            self.qkv = nn.Linear(hidden_size, 3 * proj, bias=bias)
        else:
            self.query_layer = nn.Linear(hidden_size, proj, bias=bias)
            self.key_value = nn.Linear(hidden_size, 2 * proj, bias=bias)
        self.core_attention = DotProductAttention(num_attention_heads, self.kv_channels, attention_dropout)
        self.proj = nn.Linear(proj, hidden_size, bias=bias)

    def forward(self, hidden_states: torch.Tensor, attention_mask: Optional[torch.Tensor] = None,
                encoder_output: Optional[torch.Tensor] = None, attn_mask_type: Optional[str] = None,
                core_attention_bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        """hidden_states: `[sq, b, hidden_size]`; attention_mask: `[b, 1, 1, skv]` or `[b, 1, sq, skv]`."""
        attn_mask_type = attn_mask_type or self.attn_mask_type
        if self.attention_type == "self":
            query, key, value = self.qkv(hidden_states).chunk(3, dim=-1)
        else:
            query = self.query_layer(hidden_states)
            key, value = self.key_value(encoder_output).chunk(2, dim=-1)
        query, key, value = (t.unflatten(-1, (self.num_attention_heads, self.kv_channels))
                             for t in (query, key, value))
        context = self.core_attention(query, key, value, attention_mask, attn_mask_type, core_attention_bias)
        return self.proj(context)
