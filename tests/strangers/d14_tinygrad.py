# llama-ish attention, everything on one screen
import torch
from torch import Tensor, nn
from typing import Optional

def precompute_freqs_cis(dim:int, end:int, theta:float=10000.0) -> Tensor:
  freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[:(dim // 2)].float() / dim))
  freqs = torch.arange(end).float().unsqueeze(1) * freqs.unsqueeze(0)
  return torch.stack([freqs.cos(), freqs.sin()], dim=-1).reshape(1, end, 1, dim//2, 2)

# (a+i*b) * (c+i*d) = (ac-bd) + i*(ad+bc)
def complex_mult(A:Tensor, c:Tensor, d:Tensor) -> Tensor:
  a, b = A[..., 0:1], A[..., 1:2]
  ro = a*c - b*d
  co = a*d + b*c
  return torch.cat([ro, co], dim=-1)

def apply_rotary_emb(xq:Tensor, xk:Tensor, freqs_cis:Tensor) -> tuple[Tensor, Tensor]:
  assert freqs_cis.shape[1] == xq.shape[1] == xk.shape[1], f"freqs_cis shape mismatch {freqs_cis.shape} xq:{xq.shape} xk:{xk.shape}"
  xq = xq.reshape(*xq.shape[0:-1], -1, 2)
  xk = xk.reshape(*xk.shape[0:-1], -1, 2)
  c, d = freqs_cis[..., 0:1].to(xq.dtype), freqs_cis[..., 1:2].to(xq.dtype)
  return complex_mult(xq, c, d).flatten(3), complex_mult(xk, c, d).flatten(3)

def repeat_kv(x:Tensor, n_rep:int) -> Tensor:
  bs, seqlen, n_kv_heads, head_dim = x.shape
  if n_rep == 1: return x
  return x.repeat(1, 1, 1, n_rep).reshape(bs, seqlen, n_kv_heads * n_rep, head_dim)

class Attention(nn.Module):
  def __init__(self, dim:int, n_heads:int, n_kv_heads:Optional[int]=None, max_context:int=512, rope_theta:float=10000.0):
    super().__init__()
    self.n_heads = n_heads
    self.n_kv_heads = n_kv_heads if n_kv_heads is not None else n_heads # n_kv_heads != n_heads implies MQA [arxiv/2307.09288, A.2.1]
    self.head_dim = dim // n_heads
    self.n_rep = self.n_heads // self.n_kv_heads
    self.max_context = max_context

    self.wq = nn.Linear(dim, self.n_heads * self.head_dim, bias=False)
    self.wk = nn.Linear(dim, self.n_kv_heads * self.head_dim, bias=False)
    self.wv = nn.Linear(dim, self.n_kv_heads * self.head_dim, bias=False)
    self.wo = nn.Linear(self.n_heads * self.head_dim, dim, bias=False)
    self.register_buffer("freqs_cis", precompute_freqs_cis(self.head_dim, max_context, rope_theta), persistent=False)

  # mask is added to the scores: full((1, 1, T, start_pos+T), -inf).triu(start_pos+1)
  def forward(self, x:Tensor, start_pos:int=0, mask:Optional[Tensor]=None, cache:Optional[list]=None) -> Tensor:
    bsz, seqlen, _ = x.shape
    assert start_pos + seqlen <= self.max_context, "out of context"
    xq = self.wq(x).reshape(bsz, seqlen, self.n_heads, self.head_dim)
    xk = self.wk(x).reshape(bsz, seqlen, self.n_kv_heads, self.head_dim)
    xv = self.wv(x).reshape(bsz, seqlen, self.n_kv_heads, self.head_dim)

    xq, xk = apply_rotary_emb(xq, xk, self.freqs_cis[:, start_pos:start_pos+seqlen])

    keys, values = xk, xv
    if cache is not None:
      if start_pos > 0: keys, values = torch.cat([cache[0], xk], dim=1), torch.cat([cache[1], xv], dim=1)
      cache[:] = [keys, values]
    keys, values = repeat_kv(keys, self.n_rep), repeat_kv(values, self.n_rep)
    xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)

    qk = xq @ keys.transpose(-2, -1) * self.head_dim**-0.5
    if mask is not None: qk = qk + mask
    attn = (qk.float().softmax(-1).to(values.dtype) @ values).transpose(1, 2)
    return self.wo(attn.reshape(bsz, seqlen, -1))
