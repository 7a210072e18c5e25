# coding=utf-8

"""Transformer attention."""

import math
from dataclasses import dataclass

import torch


@dataclass
class TransformerConfig:
    hidden_size: int = 64
    num_attention_heads: int = 4
    attention_dropout: float = 0.1
    attention_softmax_in_fp32: bool = False
    init_method_std: float = 0.02


def attention_mask_func(attention_scores, attention_mask):
    return attention_scores.masked_fill(attention_mask, -10000.0)


def split_tensor_along_last_dim(tensor, num_partitions):
    last_dim_size = tensor.size()[-1] // num_partitions
    return torch.split(tensor, last_dim_size, dim=tensor.dim() - 1)


class SelfAttention(torch.nn.Module):
    """Self-attention layer.

    Takes and returns tensors of size [s, b, h]. attention_mask is a bool tensor of
    size [b, 1, s, s] whose true entries are masked.
    """

    def __init__(self, config: TransformerConfig, layer_number: int = 1):
        super().__init__()
        self.layer_number = max(1, layer_number)
        self.fp32 = config.attention_softmax_in_fp32
        self.num_attention_heads = config.num_attention_heads
        self.hidden_size_per_attention_head = config.hidden_size // config.num_attention_heads
        self.norm_factor = math.sqrt(self.hidden_size_per_attention_head)

        # Strided linear layer: q, k and v of one head lie next to each other.
        self.query_key_value = torch.nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.attention_dropout = torch.nn.Dropout(config.attention_dropout)
        self.dense = torch.nn.Linear(config.hidden_size, config.hidden_size)
        for layer in (self.query_key_value, self.dense):
            torch.nn.init.normal_(layer.weight, mean=0.0, std=config.init_method_std)
            torch.nn.init.zeros_(layer.bias)

    def forward(self, hidden_states, attention_mask, layer_past=None, get_key_value=False):
        # =====================
        # Query, Key, and Value
        # =====================

        # Attention heads [s, b, h] --> [s, b, np * 3 * hn]
        mixed_x_layer = self.query_key_value(hidden_states)

        # [s, b, np * 3 * hn] --> [s, b, np, 3 * hn]
        new_tensor_shape = mixed_x_layer.size()[:-1] + (
            self.num_attention_heads,
            3 * self.hidden_size_per_attention_head,
        )
        mixed_x_layer = mixed_x_layer.view(*new_tensor_shape)

        # [s, b, np, 3 * hn] --> 3 [s, b, np, hn]
        query_layer, key_layer, value_layer = split_tensor_along_last_dim(mixed_x_layer, 3)

        if layer_past is not None:
            past_key, past_value = layer_past
            key_layer = torch.cat((past_key.type_as(key_layer), key_layer), dim=0)
            value_layer = torch.cat((past_value.type_as(value_layer), value_layer), dim=0)
        present = (key_layer, value_layer) if get_key_value else None

        # ===================================
        # Raw attention scores. [b, np, s, s]
        # ===================================

        b, np = query_layer.size(1), query_layer.size(2)
        sq, sk = query_layer.size(0), key_layer.size(0)

        # [sq, b, np, hn] -> [sq, b * np, hn]
        query_layer = query_layer.reshape(sq, b * np, -1)
        key_layer = key_layer.reshape(sk, b * np, -1)

        matmul_result = torch.bmm(
            query_layer.transpose(0, 1),  # [b * np, sq, hn]
            key_layer.permute(1, 2, 0),  # [b * np, hn, sk]
        )
        attention_scores = (matmul_result / self.norm_factor).view(b, np, sq, sk)

        # ===========================
        # Attention probs and dropout
        # ===========================

        if attention_mask is not None:
            attention_scores = attention_mask_func(attention_scores, attention_mask)
        if self.fp32:
            attention_probs = torch.softmax(attention_scores.float(), dim=-1).type_as(value_layer)
        else:
            attention_probs = torch.softmax(attention_scores, dim=-1)
        attention_probs = self.attention_dropout(attention_probs)

        # =========================
        # Context layer. [sq, b, h]
        # =========================

        value_layer = value_layer.reshape(sk, b * np, -1).transpose(0, 1)
        context_layer = torch.bmm(attention_probs.view(b * np, sq, sk), value_layer)

        # [b * np, sq, hn] --> [sq, b, np * hn]
        context_layer = context_layer.transpose(0, 1).reshape(sq, b, -1)
        output = self.dense(context_layer)

        if get_key_value:
            return output, present
        return output
