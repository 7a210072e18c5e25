"""All conventions of a target at once: observed by probing, or declared by a name that has one meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from attncheck.spec import BadTarget
from attncheck.subject import Convention
from attncheck_adapters.infer.form import Form, told
from attncheck_adapters.infer.masks import find_masks, mask_replaces_pattern
from attncheck_adapters.infer.observe import find_causality, find_flag, find_layout, find_output, find_weights
from attncheck_adapters.infer.probe import Probe
from attncheck_adapters.infer.settle import settle
from attncheck_adapters.infer.words import text_of


def observed(
    probe: Probe, spec: str, heads: int, declare: Mapping[str, str], causal: Convention | None, head_width: int
) -> dict[str, Convention]:
    """All conventions, observed; what was declared stands, and decides how the target is called."""
    found: dict[str, Convention] = {}
    if "layout" in declare:
        probe.form.layout = declare["layout"]
    problem = settle(probe, head_width)
    if problem is not None:
        tried = f"; tried: {', '.join(probe.tried)}" if len(probe.tried) > 1 else ""
        raise BadTarget(
            f"the plain call of {spec} raised {told(problem)}{tried}; `attncheck init {spec}` starts an adapter"
        )
    find_output(probe, spec)
    if probe.form.extra.get("unbatched"):
        found["layout"] = Convention("unbatched", "observed", "(N,T,D) was refused and (T,D) is taken")
    elif probe.heads is None and "layout" not in declare:
        found["layout"] = find_layout(probe)
        find_output(probe, spec)
    elif probe.heads is not None:
        layout, axes = ("heads-last", "N,T,h,d") if probe.form.layout == "heads-last" else ("heads", "N,h,T,d")
        found["layout"] = Convention(layout, "observed", f"tensors of four axes ({axes})")
    find_weights(probe)
    _find_unequal(probe)
    found |= find_masks(probe, heads, declare)
    seen, window = find_causality(probe)
    # A name promises causality; the corner of the triangle is still what it is seen to be.
    found["causal"] = replace(causal, value=seen.value) if causal and seen.value in CORNERS else causal or seen
    if window is not None:
        found["window"] = window
    if seen.value == "no" and window is None and causal is None and probe.form.plain is None:
        flag = find_flag(probe)
        found |= {"causal_flag": flag} if flag else {}
    by_code = causal is None or OWN_WORDS.search(text_of(probe.target))
    if by_code and "causal" not in declare and seen.value != "no" and mask_replaces_pattern(probe, heads):
        evidence = "under a mask that blocks nothing every query sees every key"
        found["causal_under_mask"] = Convention("replaced", "observed", evidence)
    found["weights"] = _weights_kind(probe)
    if _joins_queries(probe):
        evidence = "a query acts on every other, and the class joins tensors by cat"
        found["memory"] = Convention("joined", "observed", evidence)
    if seen.value == "no" and window is None:
        found["positions"] = find_positions(probe)
    return found


def _find_unequal(probe: Probe) -> None:
    """Whether T != S is taken at all; a refusal is no fault."""
    across = [s for s in probe.sources() if s in ("memory", "separate")]
    probe.form.extra["unequal"] = not across or probe.output(probe.inputs(across[0])) is not None


def _joins_queries(probe: Probe) -> bool:
    """Whether queries are keys beside the memory, as in a resampler (Alayrac et al. 2022, Flamingo, figure 5)."""
    if probe.sources() != ("memory",) or "cat(" not in text_of(probe.target):
        return False
    inputs = probe.inputs("memory")
    before, after = probe.output(inputs), probe.output(inputs.renewed("query", [1], seed=5))
    return before is not None and after is not None and bool((before != after).any(-1).all())


def _weights_kind(probe: Probe) -> Convention:
    if probe.form.weights is None:
        return Convention("none", "observed", "the result has no part of the shape of weights")
    flag = probe.form.names.get("weights")
    given = {} if flag is None else {flag: True}
    result = probe.raw(probe.inputs(probe.sources()[0]), **given)
    weights = eval(probe.form.weights, {"result": result, "weights": True})
    kind = "per-head" if weights.ndim == 4 else "averaged"
    probe.form.extra["heads"] = weights.shape[1] if weights.ndim == 4 else None
    return Convention(kind, "observed", f"{probe.form.weights} has shape {tuple(weights.shape)}")


def named_causal(obj: Any, flags: Sequence[bool], form: Form) -> Convention | None:
    """A class or flag called causal declares it, and so does a class called masked that takes no mask."""
    if flags:
        return Convention("top-left", "declared", "by a flag of the constructor") if flags[0] else None
    name = getattr(obj, "__name__", type(obj).__name__).lower()
    masks = {"mask", "padding"} & set(form.names)
    if "noncausal" not in name and ("causal" in name or ("masked" in name and not masks)):
        return Convention("top-left", "declared", f"by the name {getattr(obj, '__name__', type(obj).__name__)}")
    return None


# A class that says in its code that it is causal where no mask is given, means it.
OWN_WORDS = re.compile(r"causal\w*\s*=\s*\(?\s*\w*mask\w* is None|if \w*mask\w* is None:")
CORNERS = ("top-left", "bottom-right")
RELATIVE = re.compile(r"rope|rotary|rotate|alibi|slopes|relative|\brel|_rel|distance|freqs", re.I)
PLACES = re.compile(r"\bpos|theta|sinusoid|\bcos\b|arange|Embedding", re.I)


def find_positions(probe: Probe) -> Convention:
    """Whether the order of tokens matters, and the class says that it is meant to.

    A class that speaks of no positions and yet knows the order is left to `symmetry.permutation`.
    """
    inputs = probe.inputs("self" if "self" in probe.sources() else probe.sources()[0])
    order = [(i + 1) % inputs.key.shape[-2] for i in range(inputs.key.shape[-2])]
    before, after = (
        probe.output(inputs),
        probe.output(inputs.reindexed(order, -2, "query key value" if inputs.tied else "key value")),
    )
    if before is None or after is None:
        return Convention(None, "observed", "undecided: the call was refused")
    moved = (after - (before[..., order, :] if inputs.tied else before)).abs().max()
    if float(moved) <= 64 * torch.finfo(probe.dtype).eps * float(before.abs().max()):
        return Convention("none", "observed", "permuting the tokens permutes the outputs")
    text = text_of(probe.target)
    relative, word = RELATIVE.search(text), PLACES.search(text)
    if relative is None and word is None:
        return Convention("none", "observed", "order matters, but the class speaks of no positions")
    kind, word = ("relative", relative) if relative else ("absolute", word)
    assert word is not None
    return Convention(kind, "observed", f"order matters, and the class speaks of {word.group()!r}")
