import math
from types import SimpleNamespace

import torch
from torch import nn


def small_config(**kw):
    base = dict(hidden_size=32, num_attention_heads=4, attention_probs_dropout_prob=0.0)
    base.update(kw)
    return SimpleNamespace(**base)


class SelfAttention(nn.Module):
    """Encoder self attention. attention_mask: (batch, seq) int, 1 for tokens, 0 for [PAD]."""

    def __init__(self, config):
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = int(config.hidden_size / config.num_attention_heads)
        self.all_head_size = self.num_attention_heads * self.attention_head_size
        self.query = nn.Linear(config.hidden_size, self.all_head_size)
        self.key = nn.Linear(config.hidden_size, self.all_head_size)
        self.value = nn.Linear(config.hidden_size, self.all_head_size)
        self.dense = nn.Linear(self.all_head_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def transpose_for_scores(self, x):
        x = x.view(x.size(0), x.size(1), self.num_attention_heads, self.attention_head_size)
        return x.permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask=None):
        query_layer = self.transpose_for_scores(self.query(hidden_states))
        key_layer = self.transpose_for_scores(self.key(hidden_states))
        value_layer = self.transpose_for_scores(self.value(hidden_states))

        attention_scores = torch.matmul(query_layer, key_layer.transpose(-1, -2))
        attention_scores = attention_scores / math.sqrt(self.attention_head_size)
        if attention_mask is not None:
            extended_attention_mask = attention_mask.unsqueeze(1).unsqueeze(2).to(attention_scores.dtype)
            extended_attention_mask = (1.0 - extended_attention_mask) * -10.0
            attention_scores = attention_scores + extended_attention_mask

        attention_probs = nn.Softmax(dim=-1)(attention_scores)
        attention_probs = self.dropout(attention_probs)
        context_layer = torch.matmul(attention_probs, value_layer)
        context_layer = context_layer.permute(0, 2, 1, 3).contiguous()
        context_layer = context_layer.view(*context_layer.size()[:-2], self.all_head_size)
        return self.dense(context_layer)

class Config:
    hidden_size=24; num_attention_heads=4; attention_probs_dropout_prob=0.0; hidden_dropout_prob=0.0; layer_norm_eps=1e-5; is_decoder=False; max_position_embeddings=64
    def __init__(self, **kw): pass
def make():
    return SelfAttention(Config())
