import torch
import torch.nn as nn


class EncoderSelfAttention(nn.Module):
    """Unmasked multi-head self attention, input and output (batch, seq, features)."""

    def __init__(self, d_model: int, nhead: int, dropout: float = 0.0):
        super().__init__()
        self.nhead = nhead
        self.d_head = d_model // nhead
        self.wq = nn.Linear(d_model, d_model)
        self.wk = nn.Linear(d_model, d_model)
        self.wv = nn.Linear(d_model, d_model)
        self.wo = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, src):
        # the computation below is sequence first
        src = src.transpose(0, 1)
        seq_len, bsz, d_model = src.shape

        q = self.wq(src).reshape(seq_len, bsz * self.nhead, self.d_head).transpose(0, 1)
        k = self.wk(src).reshape(seq_len, bsz * self.nhead, self.d_head).transpose(0, 1)
        v = self.wv(src).reshape(seq_len, bsz * self.nhead, self.d_head).transpose(0, 1)

        attn = torch.bmm(q, k.transpose(1, 2)) / (self.d_head ** 0.5)
        attn = self.dropout(torch.softmax(attn, dim=-1))

        out = torch.bmm(attn, v).transpose(0, 1).reshape(seq_len, bsz, d_model)
        return self.wo(out).transpose(0, 1)
