"""
Attention of a detection transformer. Position embeddings are not added once at the
input but to queries and keys (never to values) in every layer.
"""
from typing import Optional

from torch import nn, Tensor


def with_pos_embed(tensor: Tensor, pos: Optional[Tensor]):
    return tensor if pos is None else tensor + pos


class PositionalMultiheadAttention(nn.Module):
    """
    tgt: (num_queries, batch, d_model)
    memory: (hw, batch, d_model), or None for self attention
    pos / query_pos: same shape as memory / tgt
    memory_key_padding_mask: (batch, hw), True at padded pixels
    memory_mask: (num_queries, hw), True where attention is not permitted
    """

    def __init__(self, d_model=256, nhead=8, dropout=0.0):
        super().__init__()
        self.d_model = d_model
        self.nhead = nhead
        self.attn = nn.MultiheadAttention(d_model, nhead, dropout=dropout)
        self._reset_parameters()

    def _reset_parameters(self):
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, tgt,
                memory: Optional[Tensor] = None,
                memory_mask: Optional[Tensor] = None,
                memory_key_padding_mask: Optional[Tensor] = None,
                pos: Optional[Tensor] = None,
                query_pos: Optional[Tensor] = None):
        q = with_pos_embed(tgt, query_pos)
        if memory is None:
            k, v = q, tgt
        else:
            k, v = with_pos_embed(memory, pos), memory
        tgt2 = self.attn(query=q, key=k, value=v,
                         attn_mask=memory_mask,
                         key_padding_mask=memory_key_padding_mask,
                         need_weights=False)[0]
        return tgt2
