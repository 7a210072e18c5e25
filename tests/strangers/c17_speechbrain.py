"""Attention for speech transformers: a batch-first shell around the torch layer, and mask helpers."""

from typing import Optional

import torch
import torch.nn as nn


def get_lookahead_mask(padded_input):
    """Float mask (time, time), -inf above the diagonal, for a (batch, time, ...) input."""
    seq_len = padded_input.shape[1]
    mask = torch.full((seq_len, seq_len), float("-inf"), device=padded_input.device)
    return mask.triu(1)


def get_key_padding_mask(padded_input, pad_idx):
    """True where the (batch, time) token ids are padding."""
    return padded_input.eq(pad_idx)


class MultiheadAttention(nn.Module):
    """Attention over (batch, time, feature) tensors, computed by torch.nn.MultiheadAttention.

    Arguments
    ----------
    nhead : int
        Number of heads.
    d_model : int
        Size of queries and of the output.
    dropout : float
        Dropout of the weights (default: 0.0).
    bias : bool
        Biases in the projections (default: True).
    kdim : int
        Size of the keys, if not d_model.
    vdim : int
        Size of the values, if not d_model.

    Example
    -------
    >>> att = MultiheadAttention(nhead=4, d_model=64)
    >>> x = torch.rand(2, 25, 64)
    >>> y, weights = att(x, x, x)
    >>> y.shape, weights.shape
    (torch.Size([2, 25, 64]), torch.Size([2, 25, 25]))
    """

    def __init__(self, nhead, d_model, dropout=0.0, bias=True, kdim=None, vdim=None):
        super().__init__()
        self.att = nn.MultiheadAttention(
            embed_dim=d_model, num_heads=nhead, dropout=dropout, bias=bias, kdim=kdim, vdim=vdim,
        )

    def forward(
        self,
        query,
        key,
        value,
        attn_mask: Optional[torch.Tensor] = None,
        key_padding_mask: Optional[torch.Tensor] = None,
        return_attn_weights: Optional[bool] = True,
        pos_embs: Optional[torch.Tensor] = None,
    ):
        """
        Arguments
        ----------
        query : tensor
            (N, L, E), L steps that ask.
        key : tensor
            (N, S, kdim), S steps to look at.
        value : tensor
            (N, S, vdim)
        attn_mask : tensor
            (L, S), or (N*num_heads, L, S) for one mask a head. True positions may not be attended,
            floats are added to the scores.
        key_padding_mask : tensor
            (N, S). True positions are ignored.
        pos_embs : tensor
            (L, S), or (N*num_heads, L, S): float bias added to attn_mask.

        Outputs
        -------
        attn_output : tensor
            (N, L, E)
        attn_output_weights : tensor
            (N, L, S), only if return_attn_weights
        """
        # the torch layer wants time first
        query = query.permute(1, 0, 2)
        key = key.permute(1, 0, 2)
        value = value.permute(1, 0, 2)

        if pos_embs is not None:
            if attn_mask is not None and attn_mask.dtype == torch.bool:
                attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(attn_mask, float("-inf"))
            attn_mask = pos_embs if attn_mask is None else attn_mask + pos_embs

        output, weights = self.att(
            query,
            key,
            value,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            need_weights=return_attn_weights,
        )
        output = output.permute(1, 0, 2)

        if return_attn_weights:
            return output, weights
        return output
