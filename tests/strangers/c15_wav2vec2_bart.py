from typing import Optional, Tuple

import torch
from torch import nn


class SpeechAttention(nn.Module):
    """Attention of the acoustic encoder (self) and of the text decoder (self and cross)"""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        is_decoder: bool = False,
        bias: bool = True,
    ):
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.head_dim = embed_dim // num_heads
        if (self.head_dim * num_heads) != self.embed_dim:
            raise ValueError(f"embed_dim {embed_dim} cannot be split into {num_heads} heads")
        self.scaling = self.head_dim**-0.5
        self.is_decoder = is_decoder

        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def _shape(self, tensor: torch.Tensor, bsz: int):
        return tensor.view(bsz, -1, self.num_heads, self.head_dim).transpose(1, 2).contiguous()

    def forward(
        self,
        hidden_states: torch.Tensor,
        key_value_states: Optional[torch.Tensor] = None,
        past_key_value: Optional[Tuple[torch.Tensor, torch.Tensor]] = None,
        attention_mask: Optional[torch.Tensor] = None,
        layer_head_mask: Optional[torch.Tensor] = None,
        output_attentions: bool = False,
    ) -> Tuple[torch.Tensor, Optional[torch.Tensor], Optional[Tuple[torch.Tensor, torch.Tensor]]]:
        """`hidden_states` is (bsz, tgt_len, embed_dim), `attention_mask` additive (bsz, 1, tgt_len, src_len)."""

        is_cross_attention = key_value_states is not None
        bsz, tgt_len, _ = hidden_states.size()

        query_states = self._shape(self.q_proj(hidden_states) * self.scaling, bsz)
        if is_cross_attention and past_key_value is not None:
            # the encoder side does not change while decoding
            key_states, value_states = past_key_value
        elif is_cross_attention:
            key_states = self._shape(self.k_proj(key_value_states), bsz)
            value_states = self._shape(self.v_proj(key_value_states), bsz)
        else:
            key_states = self._shape(self.k_proj(hidden_states), bsz)
            value_states = self._shape(self.v_proj(hidden_states), bsz)
            if past_key_value is not None:
                key_states = torch.cat([past_key_value[0], key_states], dim=2)
                value_states = torch.cat([past_key_value[1], value_states], dim=2)

        present = (key_states, value_states) if self.is_decoder else None

        src_len = key_states.size(2)
        scores = torch.matmul(query_states, key_states.transpose(2, 3))

        masked_scores = scores
        if attention_mask is not None:
            if attention_mask.size() != (bsz, 1, tgt_len, src_len):
                raise ValueError(
                    f"attention_mask is {tuple(attention_mask.size())}, expected {(bsz, 1, tgt_len, src_len)}"
                )
            masked_scores = scores + attention_mask

        attn_weights = nn.functional.softmax(masked_scores, dim=-1)

        if layer_head_mask is not None:
            attn_weights = layer_head_mask.view(1, -1, 1, 1) * attn_weights

        attn_probs = nn.functional.dropout(attn_weights, p=self.dropout, training=self.training)
        attn_output = torch.matmul(attn_probs, value_states)
        attn_output = attn_output.transpose(1, 2).reshape(bsz, tgt_len, self.embed_dim)
        attn_output = self.out_proj(attn_output)

        attn_weights_out = attn_weights if output_attentions else None
        return attn_output, attn_weights_out, present
