""" Multi-Head Attention module """
import math

import torch
import torch.nn as nn


class MultiHeadedAttention(nn.Module):
    """Multi-Head Attention with `head_count` heads over `model_dim` channels.

    Args:
       head_count (int): number of parallel heads
       model_dim (int): the dimension of keys/values/queries,
           must be divisible by head_count
       dropout (float): dropout parameter
    """

    def __init__(self, head_count, model_dim, dropout=0.1):
        assert model_dim % head_count == 0
        self.dim_per_head = model_dim // head_count
        self.model_dim = model_dim
        super(MultiHeadedAttention, self).__init__()
        self.head_count = head_count

        self.linear_keys = nn.Linear(model_dim, head_count * self.dim_per_head)
        self.linear_values = nn.Linear(model_dim, head_count * self.dim_per_head)
        self.linear_query = nn.Linear(model_dim, head_count * self.dim_per_head)
        self.softmax = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(dropout)
        self.final_linear = nn.Linear(model_dim, model_dim)

    def forward(self, key, value, query, mask=None, layer_cache=None, attn_type=None):
        """
        Compute the context vector and the attention vectors.

        Args:
           key (FloatTensor): set of `key_len` key vectors ``(batch, key_len, dim)``
           value (FloatTensor): set of `key_len` value vectors ``(batch, key_len, dim)``
           query (FloatTensor): set of `query_len` query vectors ``(batch, query_len, dim)``
           mask: binary mask, 1 at keys to leave out, ``(batch, 1, key_len)`` or
               ``(batch, query_len, key_len)``
           layer_cache (dict): keys and values of the steps before, while decoding

        Returns:
           (FloatTensor, FloatTensor):
           * output context vectors ``(batch, query_len, dim)``
           * attention vectors ``(batch, head, query_len, key_len)``
        """
        batch_size = key.size(0)
        dim_per_head = self.dim_per_head
        head_count = self.head_count

        def shape(x):
            """Projection."""
            return x.view(batch_size, -1, head_count, dim_per_head).transpose(1, 2)

        def unshape(x):
            """Compute context."""
            return x.transpose(1, 2).contiguous().view(batch_size, -1, head_count * dim_per_head)

        # 1) Project key, value, and query.
        query = shape(self.linear_query(query))
        if layer_cache is not None and attn_type == "context" and layer_cache.get("keys") is not None:
            key, value = layer_cache["keys"], layer_cache["values"]
        else:
            key = shape(self.linear_keys(key))
            value = shape(self.linear_values(value))
            if layer_cache is not None and attn_type == "self" and layer_cache.get("keys") is not None:
                key = torch.cat((layer_cache["keys"], key), dim=2)
                value = torch.cat((layer_cache["values"], value), dim=2)
        if layer_cache is not None:
            layer_cache["keys"], layer_cache["values"] = key, value

        # 2) Calculate and scale scores.
        query = query / math.sqrt(dim_per_head)
        scores = torch.matmul(query, key.transpose(2, 3)).float()

        if mask is not None:
            mask = mask.unsqueeze(1)  # [B, 1, 1 or T_query, T_key]
            scores = scores.masked_fill(mask.bool(), -1e18)

        # 3) Apply attention dropout and compute context vectors.
        attn = self.softmax(scores).to(query.dtype)
        drop_attn = self.dropout(attn)
        context = unshape(torch.matmul(drop_attn, value))
        output = self.final_linear(context)
        return output, attn
