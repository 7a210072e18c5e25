import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHeadAttn(nn.Module):
    """Multi-head attention with segment memory (sequence first), Transformer-XL code layout.

    h: (qlen, bsz, d_model); mems: (mlen, bsz, d_model) or None
    attn_mask: (qlen, klen) or (qlen, klen, bsz), True = not allowed, klen = mlen + qlen
    """

    def __init__(self, n_head, d_model, d_head, dropout, dropatt=0, pre_lnorm=False):
        super(MultiHeadAttn, self).__init__()
        self.n_head = n_head
        self.d_model = d_model
        self.d_head = d_head
        self.q_net = nn.Linear(d_model, n_head * d_head, bias=False)
        self.kv_net = nn.Linear(d_model, 2 * n_head * d_head, bias=False)
        self.drop = nn.Dropout(dropout)
        self.dropatt = nn.Dropout(dropatt)
        self.o_net = nn.Linear(n_head * d_head, d_model, bias=False)
        self.layer_norm = nn.LayerNorm(d_model)
        self.scale = 1 / (d_head ** 0.5)
        self.pre_lnorm = pre_lnorm

    def forward(self, h, attn_mask=None, mems=None):
        c = torch.cat([mems, h], 0) if mems is not None else h
        if self.pre_lnorm:
            c = self.layer_norm(c)
            head_in = self.layer_norm(h)
        else:
            head_in = h

        head_q = self.q_net(head_in)
        head_k, head_v = torch.chunk(self.kv_net(c), 2, -1)
        head_q = head_q.view(h.size(0), h.size(1), self.n_head, self.d_head)
        head_k = head_k.view(c.size(0), c.size(1), self.n_head, self.d_head)
        head_v = head_v.view(c.size(0), c.size(1), self.n_head, self.d_head)

        # [qlen x klen x bsz x n_head]
        attn_score = torch.einsum('ibnd,jbnd->ijbn', (head_q, head_k))
        attn_score = attn_score * self.scale
        if attn_mask is not None:
            if attn_mask.dim() == 2:
                attn_score = attn_score.masked_fill(attn_mask[:, :, None, None], torch.finfo(attn_score.dtype).min)
            elif attn_mask.dim() == 3:
                attn_score = attn_score.masked_fill(attn_mask[:, :, :, None], torch.finfo(attn_score.dtype).min)

        attn_prob = F.softmax(attn_score, dim=0)
        attn_prob = self.dropatt(attn_prob)

        # [qlen x klen x bsz x n_head] + [klen x bsz x n_head x d_head] -> [qlen x bsz x n_head x d_head]
        attn_vec = torch.einsum('ijbn,jbnd->ibnd', (attn_prob, head_v))
        attn_vec = attn_vec.contiguous().view(attn_vec.size(0), attn_vec.size(1), self.n_head * self.d_head)

        attn_out = self.drop(self.o_net(attn_vec))
        if self.pre_lnorm:
            return h + attn_out
        return self.layer_norm(h + attn_out)
