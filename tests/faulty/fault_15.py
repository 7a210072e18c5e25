import torch
from torch import nn


class SlicedCausalAttention(nn.Module):
    """Causal attention that works through the queries in slices, so that no (T, T) matrix per head
    is ever held at once."""

    def __init__(self, query_dim, heads=4, dim_head=8, slice_size=8, max_len=256):
        super().__init__()
        inner_dim = heads * dim_head
        self.heads = heads
        self.scale = dim_head ** -0.5
        self.slice_size = slice_size
        self.to_q = nn.Linear(query_dim, inner_dim, bias=False)
        self.to_k = nn.Linear(query_dim, inner_dim, bias=False)
        self.to_v = nn.Linear(query_dim, inner_dim, bias=False)
        self.to_out = nn.Linear(inner_dim, query_dim)
        self.register_buffer("future", torch.ones(max_len, max_len, dtype=torch.bool).triu(1), persistent=False)

    def reshape_heads_to_batch_dim(self, tensor):
        b, n, d = tensor.shape
        tensor = tensor.reshape(b, n, self.heads, d // self.heads).permute(0, 2, 1, 3)
        return tensor.reshape(b * self.heads, n, d // self.heads)

    def reshape_batch_dim_to_heads(self, tensor):
        bh, n, d = tensor.shape
        tensor = tensor.reshape(bh // self.heads, self.heads, n, d).permute(0, 2, 1, 3)
        return tensor.reshape(bh // self.heads, n, d * self.heads)

    def forward(self, hidden_states):
        sequence_length = hidden_states.shape[1]
        query = self.reshape_heads_to_batch_dim(self.to_q(hidden_states))
        key = self.reshape_heads_to_batch_dim(self.to_k(hidden_states))
        value = self.reshape_heads_to_batch_dim(self.to_v(hidden_states))

        outputs = []
        for start in range(0, sequence_length, self.slice_size):
            end = min(start + self.slice_size, sequence_length)
            attn_slice = torch.bmm(query[:, start:end], key.transpose(-1, -2)) * self.scale
            attn_slice = attn_slice.masked_fill(self.future[:end - start, :sequence_length], float("-inf"))
            attn_slice = attn_slice.softmax(dim=-1)
            outputs.append(torch.bmm(attn_slice, value))
        out = self.reshape_batch_dim_to_heads(torch.cat(outputs, dim=1))
        return self.to_out(out)
