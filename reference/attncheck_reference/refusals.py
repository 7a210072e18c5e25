"""What the reference refuses to be built with or called with, and what the error says.

N batch, T queries, S keys, D width, h heads, g key/value heads, d head width of queries and keys, e of values
"""

from collections.abc import Collection

from torch import Tensor, nn


def one_of(name: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(known)}")


def check_split(q_NhTd: Tensor, k_NgSd: Tensor, v_NgSe: Tensor, h: int, g: int) -> None:
    """Heads as the kernel takes them: it broadcasts nothing."""
    N = q_NhTd.shape[0]
    for name, x, heads in (("q", q_NhTd, h), ("k", k_NgSd, g), ("v", v_NgSe, g)):
        if x.ndim != 4 or x.shape[:2] != (N, heads):
            raise ValueError(f"{name}.shape={tuple(x.shape)}: expected ({N}, {heads}, length, head width)")
        if 0 in x.shape:
            raise ValueError(f"{name}.shape={tuple(x.shape)}: expected no empty axis")
    if k_NgSd.shape[2] != v_NgSe.shape[2]:
        raise ValueError(f"k has {k_NgSd.shape[2]} positions, v {v_NgSe.shape[2]}: expected as many")


def check_tokens(tensors: tuple[Tensor, Tensor, Tensor], layers: tuple[nn.Linear, nn.Linear, nn.Linear]) -> None:
    """Query (N,T,D), key (N,S,·) and value (N,S,·), each as wide as its projection takes it."""
    query_NTD, key_NSD, value_NSD = tensors
    for name, x, linear in zip(("query", "key", "value"), tensors, layers, strict=True):
        if x.ndim != 3 or x.shape[-1] != linear.in_features:
            raise ValueError(f"{name}.shape={tuple(x.shape)}: expected (N, length, {linear.in_features})")
        if 0 in x.shape:
            raise ValueError(f"{name}.shape={tuple(x.shape)}: expected no empty axis")
        if x.shape[0] != query_NTD.shape[0]:
            raise ValueError(f"{name}.shape={tuple(x.shape)}: expected batch {query_NTD.shape[0]}, as the query")
    if key_NSD.shape[1] != value_NSD.shape[1]:
        raise ValueError(f"key has {key_NSD.shape[1]} positions, value {value_NSD.shape[1]}: expected as many")


def check_lengths(T: int, S: int, longest: int) -> None:
    """A table of positions would be read from its end, or past it."""
    if max(T, S) > longest:
        raise ValueError(f"{T} queries and {S} keys: expected at most {longest} of each, as the table has them")
