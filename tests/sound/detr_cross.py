# Decoder cross attention in the manner of DETR / Conditional DETR (sequence first).
from typing import Optional

import torch
from torch import nn, Tensor


def with_pos_embed(tensor: Tensor, pos: Optional[Tensor]) -> Tensor:
    return tensor if pos is None else tensor + pos


class TransformerCrossAttention(nn.Module):
    """Object queries look at the encoder memory. Position codes go to queries and keys, never to values.

    tgt: (num_queries, N, d_model), memory: (HW, N, memory_dim or d_model)
    memory_mask: (num_queries, HW) bool, True = not allowed
    memory_key_padding_mask: (N, HW) bool, True = padding pixel
    """

    def __init__(self, d_model, nhead, dropout=0.1, memory_dim=None):
        super().__init__()
        memory_dim = memory_dim or d_model
        self.nhead = nhead
        self.head_dim = d_model // nhead
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(memory_dim, d_model)
        self.v_proj = nn.Linear(memory_dim, d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.attn_drop = nn.Dropout(dropout)
        self._reset_parameters()

    def _reset_parameters(self):
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, tgt, memory, memory_mask=None, memory_key_padding_mask=None,
                pos=None, query_pos=None):
        nq, bs, c = tgt.shape
        hw = memory.shape[0]
        q = self.q_proj(with_pos_embed(tgt, query_pos))
        k = self.k_proj(with_pos_embed(memory, pos))
        v = self.v_proj(memory)

        q = q.view(nq, bs, self.nhead, self.head_dim).permute(1, 2, 0, 3)
        k = k.view(hw, bs, self.nhead, self.head_dim).permute(1, 2, 3, 0)
        v = v.view(hw, bs, self.nhead, self.head_dim).permute(1, 2, 0, 3)

        logits = q @ k * self.head_dim ** -0.5
        blocked = None
        if memory_mask is not None:
            blocked = memory_mask[None, None]
        if memory_key_padding_mask is not None:
            pad = memory_key_padding_mask[:, None, None, :]
            blocked = pad if blocked is None else blocked | pad
        if blocked is not None:
            logits = logits.masked_fill(blocked, torch.finfo(logits.dtype).min)
        attn = self.attn_drop(logits.softmax(-1))
        out = (attn @ v).permute(2, 0, 1, 3).reshape(nq, bs, c)
        return self.out_proj(out)
