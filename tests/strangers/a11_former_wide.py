import torch
from torch import nn
import torch.nn.functional as F


def mask_(matrices, maskval=0.0, mask_diagonal=True):
    """
    Fills the part of a batch of square matrices above the diagonal. In place.

    :param matrices: (b, t, t)
    :param mask_diagonal: whether the diagonal goes too
    """
    h, w = matrices.size(-2), matrices.size(-1)
    indices = torch.triu_indices(h, w, offset=0 if mask_diagonal else 1)
    matrices[..., indices[0], indices[1]] = maskval


class SelfAttentionWide(nn.Module):
    """
    Self-attention in which every head works on the whole embedding.
    """

    def __init__(self, emb, heads=8, mask=False, kqnorm=False):
        """
        :param emb: embedding dimension
        :param heads: number of heads, each of the full dimension
        :param mask: autoregressive or not
        :param kqnorm: layer norms on the keys and the queries
        """
        super().__init__()

        self.emb = emb
        self.heads = heads
        self.mask = mask

        # all heads in one matrix
        self.tokeys    = nn.Linear(emb, emb * heads, bias=False)
        self.toqueries = nn.Linear(emb, emb * heads, bias=False)
        self.tovalues  = nn.Linear(emb, emb * heads, bias=False)

        self.unifyheads = nn.Linear(heads * emb, emb)

        self.kqnorm = kqnorm
        if kqnorm:
            self.kln = nn.LayerNorm([emb])
            self.qln = nn.LayerNorm([emb])

    def forward(self, x):
        b, t, e = x.size()
        h = self.heads
        assert e == self.emb, f'Input embedding dim ({e}) should match layer embedding dim ({self.emb})'

        keys    = self.tokeys(x)   .view(b, t, h, e)
        queries = self.toqueries(x).view(b, t, h, e)
        values  = self.tovalues(x) .view(b, t, h, e)

        if self.kqnorm:
            keys = self.kln(keys)
            queries = self.qln(queries)

        # - fold heads into the batch dimension
        keys = keys.transpose(1, 2).contiguous().view(b * h, t, e)
        queries = queries.transpose(1, 2).contiguous().view(b * h, t, e)
        values = values.transpose(1, 2).contiguous().view(b * h, t, e)

        # - scale both sides here, rather than the (larger) dot products below
        queries = queries / (e ** (1/4))
        keys    = keys / (e ** (1/4))

        dot = torch.bmm(queries, keys.transpose(1, 2))
        assert dot.size() == (b * h, t, t)

        if self.mask:
            mask_(dot, maskval=float('-inf'), mask_diagonal=False)

        dot = F.softmax(dot, dim=2)

        out = torch.bmm(dot, values).view(b, h, t, e)

        # swap h, t back, unify heads
        out = out.transpose(1, 2).contiguous().view(b, t, h * e)
        return self.unifyheads(out)
