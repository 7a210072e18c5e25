from math import sqrt

import torch
import torch.nn as nn


class TriangularCausalMask():
    def __init__(self, L, S, device="cpu"):
        rows = torch.arange(L, device=device).unsqueeze(1)
        cols = torch.arange(S, device=device).unsqueeze(0)
        self._mask = (cols > rows).view(1, 1, L, S)

    @property
    def mask(self):
        return self._mask


class FullAttention(nn.Module):
    def __init__(self, mask_flag=True, factor=5, scale=None, attention_dropout=0.1, output_attention=False):
        super(FullAttention, self).__init__()
        # factor is for the sparse variant, kept so that the two can be exchanged
        self.mask_flag = mask_flag
        self.scale = scale
        self.output_attention = output_attention
        self.dropout = nn.Dropout(attention_dropout)

    def forward(self, queries, keys, values, attn_mask=None, tau=None, delta=None):
        # queries [B, L, H, E], keys [B, S, H, E], values [B, S, H, D]
        # attn_mask: bool [B, 1, L, S], True is hidden. Used only with mask_flag, causal if left out.
        # tau, delta: learned de-stationary factors, [B, 1] and [B, S]
        L, E = queries.shape[1], queries.shape[-1]
        S = keys.shape[1]

        scores = torch.einsum("blhe,bshe->bhls", queries, keys)
        if tau is not None:
            scores = scores * tau[:, None, None, :]
        if delta is not None:
            scores = scores + delta[:, None, None, :]
        scores = scores * (self.scale if self.scale is not None else 1. / sqrt(E))

        if self.mask_flag:
            if attn_mask is None:
                attn_mask = TriangularCausalMask(L, S, queries.device).mask
            scores = scores.masked_fill(attn_mask, torch.finfo(scores.dtype).min)

        A = self.dropout(torch.softmax(scores, dim=-1))
        V = torch.einsum("bhls,bshd->blhd", A, values).contiguous()

        return (V, A) if self.output_attention else (V, None)


class AttentionLayer(nn.Module):
    def __init__(self, attention, d_model, n_heads, d_keys=None, d_values=None):
        super(AttentionLayer, self).__init__()
        d_keys = d_keys or d_model // n_heads
        d_values = d_values or d_model // n_heads
        self.n_heads = n_heads
        self.inner_attention = attention
        self.query_projection = nn.Linear(d_model, n_heads * d_keys)
        self.key_projection = nn.Linear(d_model, n_heads * d_keys)
        self.value_projection = nn.Linear(d_model, n_heads * d_values)
        self.out_projection = nn.Linear(n_heads * d_values, d_model)

    def _heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_heads, -1)

    def forward(self, queries, keys, values, attn_mask=None, tau=None, delta=None):
        out, attn = self.inner_attention(
            self._heads(self.query_projection(queries)),
            self._heads(self.key_projection(keys)),
            self._heads(self.value_projection(values)),
            attn_mask, tau=tau, delta=delta,
        )
        return self.out_projection(out.flatten(2)), attn
