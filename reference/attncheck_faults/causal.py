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


@fault("causal.ignored", step="pattern", bugs=("B008", "B084"), causal=True)
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
