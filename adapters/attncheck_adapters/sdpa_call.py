"""One call of F.scaled_dot_product_attention in each of its forms: torch alone, since a reproduction prints this file.

N batch, h heads, T queries, S keys, d head width, e of values, j positions of one sample
"""

import contextlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

KERNELS = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}


def call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    mask: str = "bool",
    backend: str = "default",
    pack: str = "dense",
) -> tuple[Tensor, None]:
    """(N,h,T,e), and no weights. What a form cannot say is said as a dense batch with a bool mask.

    allowed: bool, True = may attend; floats are added to the scores.
    """
    form = nested if pack == "nested" and jagged_says(query, key, allowed, backend) else dense
    form = packed if pack == "packed" else form
    with sdpa_kernel(KERNELS[backend]) if backend in KERNELS else contextlib.nullcontext():
        return form(query, key, value, allowed, mask), None


def dense(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, mask: str) -> Tensor:
    T, S = query.shape[2], key.shape[2]
    given: dict[str, Any] = {"enable_gqa": query.shape[1] != key.shape[1]}
    if mask == "flag" and allowed is not None and allowed.ndim == 2 and allowed.equal(allowed.new_ones(T, S).tril()):
        given["is_causal"] = True
    elif mask == "additive" and allowed is not None and allowed.dtype == torch.bool:
        given["attn_mask"] = torch.zeros_like(allowed, dtype=query.dtype).masked_fill(~allowed, -torch.inf)
    elif allowed is not None:
        given["attn_mask"] = allowed
    return F.scaled_dot_product_attention(query, key, value, **given)


def jagged_says(query: Tensor, key: Tensor, allowed: Tensor | None, backend: str) -> bool:
    """Whether jagged tensors take the call: by the math kernel, without groups, and no mask but padding at the end."""
    if query.shape[1] != key.shape[1] or backend == "flash":
        return False
    if allowed is None or allowed.ndim == 2 or allowed.shape[1:3] != (1, 1) or allowed.dtype != torch.bool:
        return allowed is None
    return bool(allowed[..., 0].all()) and bool((allowed[..., 1:] <= allowed[..., :-1]).all())


def nested(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, mask: str) -> Tensor:
    """Each sample is as long as the padding mask (N,1,1,S) says, in a tensor without padding."""
    N, _, S, _ = key.shape
    hidden = [0] * N if allowed is None else (~allowed).expand(N, 1, 1, S).sum(-1).flatten().tolist()
    queries, keys, values = jagged(query, [0] * N), jagged(key, hidden), jagged(value, hidden)
    output = F.scaled_dot_product_attention(queries, keys, values)
    return torch.stack(output.transpose(1, 2).unbind()).transpose(1, 2)


def jagged(x_NhSd: Tensor, hidden: list[int]) -> Tensor:
    """(N,h,j,d), each sample without its last `hidden` positions."""
    rows = [x_hSd[:, : x_hSd.shape[1] - n].transpose(0, 1) for x_hSd, n in zip(x_NhSd, hidden, strict=True)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged).transpose(1, 2)


def packed(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, mask: str) -> Tensor:
    """All samples in one row (1,h,N*T,d), kept apart by the blocks of a mask (1,h,N*T,N*S), and cut apart again."""
    N, h, T, _ = query.shape
    allowed = torch.ones(T, key.shape[2], dtype=torch.bool, device=query.device) if allowed is None else allowed
    allowed_NhTS = (allowed[None, None] if allowed.ndim == 2 else allowed).expand(N, -1, T, key.shape[2])
    own_NTNS = torch.eye(N, dtype=torch.bool, device=query.device)[:, None, :, None]
    hidden = False if allowed.dtype == torch.bool else -torch.inf
    blocks_hNTNS = torch.where(own_NTNS, allowed_NhTS.transpose(0, 1)[:, :, :, None], hidden)
    query, key, value = (x.transpose(0, 1).flatten(1, 2)[None] for x in (query, key, value))
    return dense(query, key, value, blocks_hNTNS.flatten(3).flatten(1, 2)[None], mask).view(h, N, T, -1).transpose(0, 1)
