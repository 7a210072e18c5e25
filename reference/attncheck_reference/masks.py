"""Which key may a query see. Everything here is bool with True = may attend.

N batch, h heads, T queries, S keys
"""

import torch
from torch import Tensor

DEAD_ROWS = ("refuse", "nan", "zero", "uniform")
CORNERS = ("top-left", "bottom-right")
MASKED = ("also", "instead")


def pattern(
    T: int,
    S: int,
    causal: bool = False,
    corner: str = "top-left",
    window: tuple[int, int] | None = None,
    device: torch.device | None = None,
) -> Tensor | None:
    """The mask (T,S) of causality and window, None where neither hides a key.

    Query t stands at key position t (corner "top-left") or t + S - T ("bottom-right").
    """
    if corner not in CORNERS:
        raise ValueError(f"corner={corner!r}: expected one of {', '.join(CORNERS)}")
    if not causal and window is None:
        return None
    here_T1 = torch.arange(T, device=device)[:, None] + (S - T if corner == "bottom-right" else 0)
    offset_TS = torch.arange(S, device=device) - here_T1
    allowed_TS = offset_TS <= 0 if causal else torch.ones_like(offset_TS, dtype=torch.bool)
    if window is not None:
        allowed_TS = allowed_TS & (offset_TS >= window[0]) & (offset_TS <= window[1])
    return allowed_TS


def combined(pattern_TS: Tensor | None, allowed: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """Logical AND of the built-in pattern, the given mask, and a bias that forbids by -inf."""
    masks = [m for m in (pattern_TS, allowed, None if bias is None else bias != -torch.inf) if m is not None]
    if not masks:
        return None
    result = masks[0]
    for mask in masks[1:]:
        result = result & mask
    return result


def check_allowed(allowed: Tensor | None, shape_NhTS: tuple[int, int, int, int], device: torch.device) -> None:
    """Refuse what would be misread: a mask of another meaning, or one that fits by accident."""
    if allowed is None:
        return
    if allowed.dtype != torch.bool:
        raise TypeError(f"allowed.dtype={allowed.dtype}: expected torch.bool, True = may attend; floats go to bias=")
    if allowed.device != device:
        raise ValueError(f"allowed.device={allowed.device}: expected {device}, as the query; use allowed.to({device})")
    N, _, T, S = shape_NhTS
    if allowed.ndim == 2 and tuple(allowed.shape) != (T, S):
        hint = "; a padding mask (N,S) is passed as allowed[:, None, None, :]" if allowed.shape[0] == N else ""
        raise ValueError(f"allowed.shape={tuple(allowed.shape)}: expected (T,S)={(T, S)}{hint}")
    if allowed.ndim not in (2, 4):
        raise ValueError(f"allowed.ndim={allowed.ndim}: expected (T,S) or four axes that broadcast to (N,h,T,S)")
    if allowed.ndim == 4 and any(a not in (1, n) for a, n in zip(allowed.shape, shape_NhTS, strict=True)):
        raise ValueError(f"allowed.shape={tuple(allowed.shape)}: expected to broadcast to (N,h,T,S)={shape_NhTS}")


def check_bias(bias: Tensor | None, shape_NhTS: tuple[int, int, int, int]) -> None:
    """Refuse a mask in the wrong place, and a shape that would make the scores larger than they are."""
    if bias is None:
        return
    if not bias.is_floating_point():
        raise TypeError(f"bias.dtype={bias.dtype}: expected floats, added to the scores; bools go to allowed=")
    fits = all(b in (1, n) for b, n in zip(reversed(bias.shape), reversed(shape_NhTS), strict=False))
    if bias.ndim > 4 or not fits:
        raise ValueError(f"bias.shape={tuple(bias.shape)}: expected to broadcast to (N,h,T,S)={shape_NhTS}")
