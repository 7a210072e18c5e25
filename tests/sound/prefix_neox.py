import torch
import torch.nn.functional as F
from torch import nn


class PrefixLMAttention(nn.Module):
    """Self attention of a prefix language model (UniLM / GLM).

    The first prefix_length tokens of each sample see one another in both directions, the rest is
    causal. The fused projection is laid out per head, [q_0 k_0 v_0 q_1 k_1 v_1 ...], as in GPT-NeoX.
    """

    def __init__(self, hidden_size, num_attention_heads, attention_dropout=0.0):
        super().__init__()
        assert hidden_size % num_attention_heads == 0
        self.num_attention_heads = num_attention_heads
        self.head_size = hidden_size // num_attention_heads
        self.attention_dropout = attention_dropout
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    @staticmethod
    def build_mask(prefix_length, seq_len, device):
        pos = torch.arange(seq_len, device=device)
        causal = pos[None, :, None] >= pos[None, None, :]
        in_prefix = pos[None, None, :] < prefix_length[:, None, None]
        return (causal | in_prefix).unsqueeze(1)

    def forward(self, hidden_states, prefix_length=None):
        b, t, c = hidden_states.shape
        if prefix_length is None:
            prefix_length = torch.zeros(b, dtype=torch.long, device=hidden_states.device)
        qkv = self.query_key_value(hidden_states)
        qkv = qkv.view(b, t, self.num_attention_heads, 3 * self.head_size)
        query, key, value = (s.permute(0, 2, 1, 3) for s in qkv.chunk(3, dim=-1))

        mask = self.build_mask(prefix_length, t, hidden_states.device)
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask,
            dropout_p=self.attention_dropout if self.training else 0.0,
        )
        return self.dense(out.permute(0, 2, 1, 3).reshape(b, t, c))
