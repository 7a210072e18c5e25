import math
from dataclasses import dataclass
from typing import Optional, Tuple

import torch
from torch import nn


@dataclass
class QFormerConfig:
    hidden_size: int = 96
    num_attention_heads: int = 6
    encoder_hidden_size: int = 64
    attention_probs_dropout_prob: float = 0.1
    hidden_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-12
    cross_attention_frequency: int = 2


def extend_mask(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """(batch, seq) of ones and zeros -> additive (batch, 1, 1, seq)"""
    extended = mask[:, None, None, :].to(dtype)
    return (1.0 - extended) * torch.finfo(dtype).min


class QFormerMultiHeadAttention(nn.Module):
    def __init__(self, config: Optional[QFormerConfig] = None, is_cross_attention: bool = True):
        super().__init__()
        config = config or QFormerConfig()
        if config.hidden_size % config.num_attention_heads != 0:
            raise ValueError(
                f"hidden_size ({config.hidden_size}) is not a multiple of the number of heads "
                f"({config.num_attention_heads})"
            )
        self.config = config
        self.is_cross_attention = is_cross_attention
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = config.hidden_size // config.num_attention_heads
        self.all_head_size = self.num_attention_heads * self.attention_head_size

        kv_size = config.encoder_hidden_size if is_cross_attention else config.hidden_size
        self.query = nn.Linear(config.hidden_size, self.all_head_size)
        self.key = nn.Linear(kv_size, self.all_head_size)
        self.value = nn.Linear(kv_size, self.all_head_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def transpose_for_scores(self, x: torch.Tensor) -> torch.Tensor:
        new_x_shape = x.size()[:-1] + (self.num_attention_heads, self.attention_head_size)
        return x.view(*new_x_shape).permute(0, 2, 1, 3)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: Optional[torch.Tensor] = None,
        encoder_hidden_states: Optional[torch.Tensor] = None,
        encoder_attention_mask: Optional[torch.Tensor] = None,
        output_attentions: bool = False,
    ) -> Tuple[torch.Tensor, ...]:
        """
        `attention_mask` goes with `hidden_states` (self attention), `encoder_attention_mask` with
        `encoder_hidden_states`; both are (batch, seq) with 1 for tokens and 0 for padding.
        """
        if self.is_cross_attention:
            if encoder_hidden_states is None:
                raise ValueError("encoder_hidden_states must be given for cross-attention layers")
            source, mask = encoder_hidden_states, encoder_attention_mask
        else:
            source, mask = hidden_states, attention_mask

        query_layer = self.transpose_for_scores(self.query(hidden_states))
        key_layer = self.transpose_for_scores(self.key(source))
        value_layer = self.transpose_for_scores(self.value(source))

        attention_scores = torch.matmul(query_layer, key_layer.transpose(-1, -2))
        attention_scores = attention_scores / math.sqrt(self.attention_head_size)
        if mask is not None:
            attention_scores = attention_scores + extend_mask(mask, attention_scores.dtype)

        attention_probs = nn.functional.softmax(attention_scores, dim=-1)
        attention_probs_dropped = self.dropout(attention_probs)

        context_layer = torch.matmul(attention_probs_dropped, value_layer)
        context_layer = context_layer.permute(0, 2, 1, 3).contiguous()
        context_layer = context_layer.view(*context_layer.size()[:-2], self.all_head_size)

        return (context_layer, attention_probs) if output_attentions else (context_layer,)
