import torch
from torch import nn, tensor
import torch.nn.functional as F

__all__ = ['MultiHeadAttention', 'get_attn', 'get_output_mask']

def ifnone(a, b): return b if a is None else a

def get_output_mask(inp, pad_idx=1):
    "`True` where attention is not wanted: padding and what comes later"
    lt = torch.triu(torch.ones(inp.size(1), inp.size(1), device=inp.device), diagonal=1)
    return (inp == pad_idx)[:, None, None, :] | lt.bool()[None, None]

class MultiHeadAttention(nn.Module):
    "Multi-head attention of `q` over `kv`"
    def __init__(self, n_heads, d_model, d_head=None, p=0., bias=True, scale=True):
        super().__init__()
        d_head = ifnone(d_head, d_model//n_heads)
        self.n_heads,self.d_head,self.scale = n_heads,d_head,scale
        self.q_wgt,self.k_wgt,self.v_wgt = [nn.Linear(d_model, n_heads*d_head, bias=bias) for _ in range(3)]
        self.out = nn.Linear(n_heads*d_head, d_model, bias=bias)
        self.drop_att,self.drop_res = nn.Dropout(p),nn.Dropout(p)
        if bias:
            for l in (self.q_wgt, self.k_wgt, self.v_wgt, self.out): nn.init.normal_(l.bias, std=0.02)

    def forward(self, q, kv=None, mask=None):
        kv = ifnone(kv, q)
        return self.drop_res(self.out(self._apply_attention(q, kv, mask=mask)))

    def _apply_attention(self, q, kv, mask=None):
        bs,sl = q.size(0),q.size(1)
        wq,wk,wv = self.q_wgt(q),self.k_wgt(kv),self.v_wgt(kv)
        wq,wk,wv = [self._split(o, bs) for o in (wq,wk,wv)]
        att = wq @ wk.transpose(2,3)
        if self.scale: att = att / self.d_head**0.5
        if mask is not None: att = att.float().masked_fill(mask, -float('inf')).type_as(att)
        att = self.drop_att(F.softmax(att, dim=-1))
        return (att @ wv).permute(0,2,1,3).contiguous().view(bs, sl, -1)

    def _split(self, x, bs): return x.view(bs, x.size(1), self.n_heads, self.d_head).permute(0,2,1,3)

def get_attn(d_model=256, n_heads=8, p=0.1, **kwargs):
    "Attention layer for the learner"
    return MultiHeadAttention(n_heads, d_model, p=p, **kwargs)
