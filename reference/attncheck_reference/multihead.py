"""Multi-head attention: enter, project, split, place, attend, merge, gated, output, leave.

Vaswani et al. 2017, section 3.2.2.

N batch, T queries, S keys, D width, h heads, g key/value heads, d head width of queries and keys, e of values,
E features of all heads, m extra keys, X = S + m
"""

from typing import Any

import torch
from torch import Tensor, nn

from attncheck_reference.attention import DotProductAttention
from attncheck_reference.placing import Placing
from attncheck_reference.positions import Rotary
from attncheck_reference.refusals import check_tokens
from attncheck_reference.surroundings import Surroundings


class MultiHeadAttention(Placing, Surroundings, DotProductAttention):
    """Self- and cross-attention on (N,T,D), batch first.

    width: D of the query.  key_width, value_width: of key and value, D where None.
    head_width: d, D / heads where None.  value_head_width: e, d where None.
    out_width: of the output, D where None.  output: False leaves out the output projection (width h * e).
    bias: of the query, key and value projections.  out_bias: of the output projection, as `bias` where None.
    extra_keys: m learned key/value pairs of each key/value head, which every query sees under every mask: the
    persistent memory of Sukhbaatar et al. 2019, "Augmenting Self-attention with Persistent Memory", section 4;
    `add_bias_kv` of torch.nn.MultiheadAttention is one, and its `add_zero_attn` one of zeros. The weights returned
    are those of the S keys given, so that they sum to less than 1; no row is dead.
    rotary and qk_norm*: see `Placing`.  gate, pre_norm*, residual, post_norm: see `Surroundings`.  norm_eps: of the
    norms there, as qk_norm_eps is of those of queries and keys; where None 1e-5 of "layer", 1e-6 of "rms", 1e-12 of
    "unit".  The other keywords are those of `DotProductAttention`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        *,
        key_width: int | None = None,
        value_width: int | None = None,
        head_width: int | None = None,
        value_head_width: int | None = None,
        out_width: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        output: bool = True,
        extra_keys: int = 0,
        rotary: Rotary | str | None = None,
        qk_norm: str = "none",
        qk_norm_over: str = "head",
        qk_norm_first: bool = True,
        qk_norm_eps: float | None = None,
        gate: str = "none",
        pre_norm: str = "none",
        pre_norm_memory: str = "tied",
        residual: bool = False,
        post_norm: str = "none",
        norm_eps: float | None = None,
        **attention: Any,
    ) -> None:
        super().__init__(heads, kv_heads, **attention)
        if width < 1:
            raise ValueError(f"width={width}: expected at least 1")
        if head_width is None and width % heads:
            raise ValueError(f"width={width} is not divisible by heads={heads}; give head_width= to set it apart")
        if extra_keys < 0:
            raise ValueError(f"extra_keys={extra_keys}: expected at least 0")
        d = width // heads if head_width is None else head_width
        e = d if value_head_width is None else value_head_width
        self.width = width
        self.q = nn.Linear(width, heads * d, bias=bias)
        self.k = nn.Linear(width if key_width is None else key_width, self.kv_heads * d, bias=bias)
        self.v = nn.Linear(width if value_width is None else value_width, self.kv_heads * e, bias=bias)
        out_width = width if out_width is None else out_width
        out_bias = bias if out_bias is None else out_bias
        self.o = nn.Linear(heads * e, out_width, bias=out_bias) if output else nn.Identity()
        self.extra_keys = extra_keys
        if extra_keys:
            self.extra_k = nn.Parameter(torch.randn(self.kv_heads, extra_keys, d))
            self.extra_v = nn.Parameter(torch.randn(self.kv_heads, extra_keys, e))
        self.set_placing(heads, self.kv_heads, d, rotary, qk_norm, qk_norm_over, qk_norm_first, qk_norm_eps)
        self.set_gate(gate, width, heads, e)
        widths = width, self.k.in_features, self.v.in_features, out_width if output else heads * e
        self.set_surroundings(widths, pre_norm, pre_norm_memory, post_norm, norm_eps, residual)

    def forward(
        self,
        query_NTD: Tensor,
        key_NSD: Tensor | None = None,
        value_NSD: Tensor | None = None,
        allowed: Tensor | None = None,
        bias: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the output (N,T,D) and, if asked, the weights (N,h,T,S) before dropout.

        Without key: self-attention. Without value: the key is the memory, and serves as both.
        """
        key_NSD = query_NTD if key_NSD is None else key_NSD
        value_NSD = key_NSD if value_NSD is None else value_NSD
        check_tokens((query_NTD, key_NSD, value_NSD), (self.q, self.k, self.v))
        entered_NTD, key_NSD, value_NSD = self.enter(query_NTD, key_NSD, value_NSD)
        q_NhTd, k_NgSd, v_NgSe = self.heads_of(entered_NTD, key_NSD, value_NSD)
        mixed_NhTe, weights_NhTS = self.attend(q_NhTd, k_NgSd, v_NgSe, allowed, bias)
        output_NTD = self.output(self.gated(self.merge(mixed_NhTe), entered_NTD))
        return self.leave(output_NTD, query_NTD), weights_NhTS if need_weights else None

    def heads_of(self, query_NTD: Tensor, key_NSD: Tensor, value_NSD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of each head, as the kernel takes them."""
        q_NTE, k_NSE, v_NSE = self.project(query_NTD, key_NSD, value_NSD)
        q_NTE, k_NSE = self.norm_features(q_NTE, k_NSE)
        q_NhTd, k_NgSd, v_NgSe = (
            self.split(q_NTE, self.heads), self.split(k_NSE, self.kv_heads), self.split(v_NSE, self.kv_heads)
        )  # fmt: skip
        q_NhTd, k_NgSd = self.place(q_NhTd, k_NgSd)
        return q_NhTd, k_NgSd, v_NgSe

    def project(self, query_NTD: Tensor, key_NSD: Tensor, value_NSD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.q(query_NTD), self.k(key_NSD), self.v(value_NSD)

    def split(self, x_NTE: Tensor, heads: int) -> Tensor:
        """Head i is made of the features i*d .. (i+1)*d of each token."""
        N, T, E = x_NTE.shape
        return x_NTE.view(N, T, heads, E // heads).transpose(1, 2)

    def extend(self, q_NhTd: Tensor, scores_NhTS: Tensor, v_NhSe: Tensor) -> tuple[Tensor, Tensor]:
        if not self.extra_keys:
            return scores_NhTS, v_NhSe
        k_1hmd, v_1hme = self.spread(self.extra_k[None]), self.spread(self.extra_v[None])
        scores_NhTm = self.scale(self.score(q_NhTd, k_1hmd), q_NhTd.shape[-1])
        v_Nhme = v_1hme.expand(len(v_NhSe), -1, -1, -1)
        return torch.cat((scores_NhTS, scores_NhTm), -1), torch.cat((v_NhSe, v_Nhme), -2)

    def merge(self, mixed_NhTe: Tensor) -> Tensor:
        N, h, T, e = mixed_NhTe.shape
        return mixed_NhTe.transpose(1, 2).reshape(N, T, h * e)

    def output(self, merged_NTE: Tensor) -> Tensor:
        output_NTD: Tensor = self.o(merged_NTE)
        return output_NTD
