"""Model-hub style: multi-query self-attention, all query heads sharing one key head and one value head; no bias on the
output. attention_mask is additive float, 0 = allowed and a very negative number or -inf = blocked, of shape (N, 1 or
heads, T, T), (N, 1, 1, T) or anything that broadcasts to it. -inf is raised to the smallest finite number, so a row
without an allowed key gives a finite mix of all values, never NaN. Not causal by construction. Batch first (N, T, D);
returns the tuple (output,), or (output, weights (N, heads, T, T)) with output_attentions, weights before dropout.
"""

import torch
from torch import nn


class MultiQueryAttention(nn.Module):
    def __init__(self, hidden_size: int, num_attention_heads: int, attention_dropout: float = 0.0):
        super().__init__()
        if hidden_size % num_attention_heads != 0:
            raise ValueError(
                f"`hidden_size` must be divisible by `num_attention_heads` (got {hidden_size}, {num_attention_heads})."
            )
        self.num_heads = num_attention_heads
        self.head_dim = hidden_size // num_attention_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key_value = nn.Linear(hidden_size, 2 * self.head_dim)
        self.dense = nn.Linear(hidden_size, hidden_size, bias=False)
        self.attention_dropout = nn.Dropout(attention_dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        output_attentions: bool = False,
    ) -> tuple[torch.Tensor, ...]:
        batch_size, seq_length, hidden_size = hidden_states.shape

        query_layer = self.query(hidden_states).view(batch_size, seq_length, self.num_heads, self.head_dim)
        query_layer = query_layer.permute(0, 2, 1, 3)
        key_layer, value_layer = self.key_value(hidden_states).unsqueeze(1).split(self.head_dim, dim=-1)

        attention_scores = torch.matmul(query_layer, key_layer.transpose(-1, -2)) / self.head_dim**0.5
        # half precision is too narrow for the sum of score and mask
        dtype = torch.promote_types(attention_scores.dtype, torch.float32)
        attention_scores = attention_scores.to(dtype)
        if attention_mask is not None:
            if not attention_mask.is_floating_point():
                raise TypeError("`attention_mask` is added to the scores and must be a float tensor.")
            attention_scores = attention_scores + attention_mask.to(dtype).clamp(min=torch.finfo(dtype).min)
        attention_probs = attention_scores.softmax(dim=-1).to(value_layer.dtype)

        context_layer = torch.matmul(self.attention_dropout(attention_probs), value_layer)
        context_layer = context_layer.permute(0, 2, 1, 3).reshape(batch_size, seq_length, hidden_size)
        output = self.dense(context_layer)
        return (output, attention_probs) if output_attentions else (output,)
