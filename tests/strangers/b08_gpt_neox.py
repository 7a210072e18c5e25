from typing import Optional

import torch
from torch import nn


class NeoXArgs:
    """The few fields of the training yaml that attention reads."""

    def __init__(self, **overrides):
        self.hidden_size = 512
        self.num_attention_heads = 8
        self.rotary_pct = 0.25
        self.rotary_emb_base = 10000
        self.seq_length = 512
        self.attention_dropout = 0.0
        for name, value in overrides.items():
            if not hasattr(self, name):
                raise AttributeError(name)
            setattr(self, name, value)


def _rotate_half(x: torch.Tensor) -> torch.Tensor:
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat([-x2, x1], dim=-1)


class ParallelSelfAttention(nn.Module):
    """One fused projection, stored head by head as [q | k | v]; rotary on part of each head."""

    def __init__(self, neox_args: NeoXArgs):
        super().__init__()
        self.h = neox_args.num_attention_heads
        self.hn = neox_args.hidden_size // self.h
        self.rot = int(self.hn * neox_args.rotary_pct)
        self.norm_factor = self.hn ** 0.5

        self.query_key_value = nn.Linear(neox_args.hidden_size, 3 * neox_args.hidden_size)
        self.dense = nn.Linear(neox_args.hidden_size, neox_args.hidden_size)
        self.attention_dropout = nn.Dropout(neox_args.attention_dropout)

        inv_freq = 1.0 / neox_args.rotary_emb_base ** (torch.arange(0, self.rot, 2).float() / self.rot)
        angle = torch.einsum("i,j->ij", torch.arange(neox_args.seq_length).float(), inv_freq)
        emb = torch.cat((angle, angle), dim=-1)
        # [seq, 1, 1, rot], the megatron order
        self.register_buffer("cos", emb.cos()[:, None, None, :], persistent=False)
        self.register_buffer("sin", emb.sin()[:, None, None, :], persistent=False)

    def rotary(self, x: torch.Tensor) -> torch.Tensor:
        x_rot, x_pass = x[..., : self.rot], x[..., self.rot :]
        cos, sin = self.cos[: x.shape[0]].to(x.dtype), self.sin[: x.shape[0]].to(x.dtype)
        x_rot = x_rot * cos + _rotate_half(x_rot) * sin
        return torch.cat((x_rot, x_pass), dim=-1)

    def forward(self, hidden_states: torch.Tensor, attention_mask: Optional[torch.Tensor] = None):
        # hidden_states [sq, b, h]; attention_mask [b, 1, sq, sk], True = masked out
        sq, b, _ = hidden_states.shape

        # [sq, b, 3 * h] -> [sq, b, np, 3 * hn]
        mixed = self.query_key_value(hidden_states).view(sq, b, self.h, 3 * self.hn)
        q, k, v = mixed.split(self.hn, dim=-1)
        q, k = self.rotary(q), self.rotary(k)

        # [sq, b, np, hn] -> [b, np, sq, hn]
        q, k, v = q.permute(1, 2, 0, 3), k.permute(1, 2, 0, 3), v.permute(1, 2, 0, 3)

        scores = torch.matmul(q, k.transpose(-2, -1)) / self.norm_factor
        if attention_mask is None:
            attention_mask = torch.ones(sq, sq, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(attention_mask, -10000.0)
        probs = self.attention_dropout(torch.softmax(scores, dim=-1))

        # [b, np, sq, hn] -> [sq, b, h]
        context = torch.matmul(probs, v).permute(2, 0, 1, 3).contiguous()
        context = context.view(sq, b, self.h * self.hn)
        return self.dense(context)
