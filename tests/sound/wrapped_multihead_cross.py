"""Application style: a thin wrapper around nn.MultiheadAttention(batch_first=True) that lets x read from a memory and
hands back the output only. memory_key_padding_mask is boolean (N, S), True = blocked (padding). When the whole memory
of a sample is padding, its rows have no allowed key and the output for that sample is zero. Not causal. Batch first:
x (N, T, D), memory (N, S, D), result (N, T, D).
"""

from torch import nn


class MemoryAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__()
        self.mha = nn.MultiheadAttention(embed_dim, num_heads, dropout=dropout, batch_first=True)

    def forward(self, x, memory, memory_key_padding_mask=None):
        if memory_key_padding_mask is None:
            return self.mha(x, memory, memory, need_weights=False)[0]

        # nn.MultiheadAttention promises nothing for samples that are all padding: open them up, then blank them
        nothing = memory_key_padding_mask.all(dim=1, keepdim=True)
        padding = memory_key_padding_mask & ~nothing
        out, _ = self.mha(x, memory, memory, key_padding_mask=padding, need_weights=False)
        return out.masked_fill(nothing.unsqueeze(-1), 0.0)
