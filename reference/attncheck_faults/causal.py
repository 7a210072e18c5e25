"""Faults of built-in causality. T queries, S keys; `m` is the broken module, `sound` the step as it should be."""

import torch

from attncheck_faults.record import fault


@fault("causal.diagonal-plus-one", step="pattern", bugs=("B233",), causal=True)
def plus_one(m, sound, T, S, device):
    """The triangle is one too high: each query also sees the next key"""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(1)


@fault("causal.strict", step="pattern", bugs=("B232",), causal=True, dead_rows="uniform")
def strict(m, sound, T, S, device):
    """The triangle is one too low: no query sees its own key, and the first sees none"""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(-1)


@fault("causal.ignored", step="pattern", bugs=("B008", "B084", "B132"), causal=True)
def ignored(m, sound, T, S, device):
    """The causal flag is stored and never used"""
    return


@fault("causal.upside-down", step="pattern", bugs=("B018",), causal=True)
def upside_down(m, sound, T, S, device):
    """The triangle is inverted: each query sees itself and the future"""
    return torch.ones(T, S, dtype=torch.bool, device=device).triu()


@fault("causal.window-of-two", step="pattern", bugs=("B042",), causal=True)
def window_of_two(m, sound, T, S, device):
    """Only the own key and the one before are seen"""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril().triu(-1)


@fault("causal.forgets-position-zero", step="pattern", bugs=("B175",), causal=True)
def forgets_zero(m, sound, T, S, device):
    """Key 0 is hidden from all queries but the first"""
    allowed = sound(T, S, device).clone()
    allowed[1:, 0] = False
    return allowed


@fault("causal.dropped-with-weights", step="forward", path="weights", bugs=("B008", "B083"), causal=True)
def dropped_with_weights(m, sound, query, key, value, allowed=None, bias=None, need_weights=False):
    """Causality is dropped as soon as weights are asked for"""
    m.causal = not need_weights
    return sound(query, key, value, allowed, bias, need_weights)


@fault("causal.leaks-without-grad", step="pattern", bugs=("B180",), causal=True)
def leaks_without_grad(m, sound, T, S, device):
    """Causality is dropped on the path without gradients"""
    return sound(T, S, device) if torch.is_grad_enabled() else None


@fault("causal.leaks-in-evaluation", step="pattern", causal=True)
def leaks_in_evaluation(m, sound, T, S, device):
    """Causality is dropped in evaluation, where a fused path was trusted to have it"""
    return sound(T, S, device) if m.training or torch.is_grad_enabled() else None


@fault("causal.dropped-under-mask", step="attend", bugs=("B083", "B215"), causal=True)
def dropped_under_mask(m, sound, q, k, v, allowed, bias):
    """An explicit mask replaces the triangle instead of adding to it"""
    m.causal = allowed is None and bias is None
    return sound(q, k, v, allowed, bias)


@fault("causal.last-head-leaks", step="mask", causal=True)
def last_head(m, sound, scores, allowed):
    """The last head is left without the triangle"""
    return torch.cat((sound(scores, allowed)[:, :-1], scores[:, -1:]), 1)


@fault("causal.leaks-in-gradient", step="mix", causal=True)
def in_gradient(m, sound, weights, v):
    """A straight-through path carries gradients of all values that the forward pass does not show"""
    mean = v.mean(-2, keepdim=True) * 0.1
    return sound(weights, v) + (mean - mean.detach())


@fault("causal.mask-of-first-length", step="pattern", bugs=("B096", "B127", "B222"), causal=True)
def first_length(m, sound, T, S, device):
    """The triangle is kept from the first call, and what lies beyond it is seen"""
    if not hasattr(m, "kept"):
        m.kept = sound(T, S, device)
    allowed = torch.ones(T, S, dtype=torch.bool, device=device)
    t, s = min(T, m.kept.shape[0]), min(S, m.kept.shape[1])
    allowed[:t, :s] = m.kept[:t, :s]
    return allowed


@fault("causal.forgotten-past-sixteen", step="pattern", causal=True)
def past_sixteen(m, sound, T, S, device):
    """The triangle is a buffer of sixteen positions, and longer inputs go without"""
    return sound(T, S, device) if T <= 16 else None


@fault(
    "causal.other-corner",
    step="pattern",
    bugs=("B014", "B021", "B022", "B071", "B115", "B126", "B150", "B242"),
    causal=True,
    dead_rows="zero",
)
def other_corner(m, sound, T, S, device):
    """The triangle hangs from the bottom right where the top left is declared"""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T)


@fault("causal.corner-wrong-for-few-keys", step="pattern", bugs=("B021", "B116"), causal=True, dead_rows="zero")
def few_keys(m, sound, T, S, device):
    """The triangle hangs from the other corner where there are fewer keys than queries"""
    return sound(T, S, device) if S >= T else torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T)


@fault("causal.where-not-asked", step="attend", bugs=("B216",))
def not_asked(m, sound, q, k, v, allowed, bias):
    """A padding mask brings a triangle along"""
    padding = allowed is not None and allowed.ndim == 4 and allowed.shape[-2] == 1
    triangle = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    return sound(q, k, v, allowed & triangle if padding else allowed, bias)


@fault("window.one-too-wide", step="pattern", bugs=("B042", "B045", "B193"), window=(-2, 0))
def one_too_wide(m, sound, T, S, device):
    """The window holds one key more to the left than was declared"""
    return window_mask(T, S, device, m.window[0] - 1, m.window[1])


@fault("window.one-too-narrow", step="pattern", bugs=("B043", "B169"), window=(-2, 0))
def one_too_narrow(m, sound, T, S, device):
    """The window holds one key less to the left than was declared"""
    return window_mask(T, S, device, m.window[0] + 1, m.window[1])


@fault("window.wrong-side", step="pattern", bugs=("B044",), window=(-2, 0))
def wrong_side(m, sound, T, S, device):
    """The window lies to the right where it should lie to the left"""
    return window_mask(T, S, device, -m.window[1], -m.window[0])


@fault("window.ignored-when-long", step="pattern", bugs=("B085",), window=(-2, 0))
def ignored_when_long(m, sound, T, S, device):
    """From six positions on the window is ignored"""
    return sound(T, S, device) if T < 6 else None


def window_mask(T, S, device, first, last):
    offset = torch.arange(S, device=device) - torch.arange(T, device=device)[:, None]
    return (offset >= first) & (offset <= last)
