"""Meeting a class that nobody has described: build it, find out how it is called, and what it means.

Nothing is guessed silently: what was observed stands in the conventions with its evidence.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from attncheck.copies import copied_module
from attncheck.dropout import set_dropout
from attncheck.spec import BadTarget, importing_code
from attncheck.subject import MODES, Convention
from attncheck_adapters.infer.adapter import Inferred, materialised
from attncheck_adapters.infer.construct import OTHER_SIZES, SIZES, build, plan
from attncheck_adapters.infer.conventions import named_causal, observed
from attncheck_adapters.infer.form import Form, form_of
from attncheck_adapters.infer.probe import T_, Probe
from attncheck_adapters.infer.recipe import Recipe
from attncheck_adapters.infer.settle import settle
from attncheck_adapters.infer.sizes import Sizes, sizes_of
from attncheck_adapters.infer.words import chosen_by_constructor, text_of
from attncheck_adapters.seeded import redraw_degenerate


def meet(
    obj: Any, spec: str, init: dict[str, Any] | None, declare: dict[str, str], kind: str | None, config: Any
) -> list[Inferred]:
    """The configurations of an unknown target, each probed on its own."""
    if kind not in (None, "attention", "kernel"):
        raise BadTarget(f"target-kind={kind}: only attention and kernel can be inferred so far; give an adapter")
    if is_kernel(obj, kind):
        return [_kernel(obj, spec, declare)]
    if isinstance(obj, nn.Module):
        return [_attention(obj, spec, copied_module(obj), None, declare)]
    (recipe, target), *others = build(obj, init, config)
    try:
        first = _attention(obj, spec, target, recipe, declare)
    except BadTarget as problem:
        return _otherwise(obj, spec, init, declare, config, (recipe, target), problem)
    more = (_further(first, target, recipe, declare) for recipe, target in others)
    return [first, *(adapter for adapter in more if adapter is not None)]


def _otherwise(
    obj: Any,
    spec: str,
    init: dict[str, Any] | None,
    declare: dict[str, str],
    config: Any,
    built: Any,
    problem: BadTarget,
) -> list[Inferred]:
    """A class that was built and not called: one of heads that are split already, or one that needs other sizes."""
    recipe, target = built
    if isinstance(target, nn.Module) and next(target.parameters(), None) is None and callable(target.forward):
        with contextlib.suppress(BadTarget):
            return [_kernel(target, spec, declare, recipe)]
    chances = [(SIZES[0], True), *((sizes, False) for sizes in OTHER_SIZES if init is None)]
    for sizes, configs in chances:
        with contextlib.suppress(BadTarget):
            other = plan(obj, init, config, sizes, configs)
            if other.text != recipe.text:
                return [_attention(obj, spec, other.make(), other, declare)]
    raise problem


def _further(first: Inferred, target: Any, recipe: Recipe, declare: dict[str, str]) -> Inferred | None:
    """A second or third configuration, called and meant as the first; None where the class builds it only.

    One class has one meaning: where another configuration goes another way, that is for the checks to find.
    """
    form = copy.deepcopy(first.form)
    sizes, notes = _sized(target, recipe, form, declare)
    if isinstance(target, nn.Module):
        set_dropout(target.to(first.dtype), 0.0)
    probe = Probe(target, form, sizes.widths, None, first.dtype, sizes.heads)
    if form.given and settle(probe, sizes.head_width) is not None:
        return None
    if probe.output(probe.inputs(probe.sources()[0], S=T_)) is None:
        return None
    known = dict(first.conventions)
    made = (target, "attention", form, sizes, recipe.text, first.imported, recipe, known, notes, first.dtype)
    return Inferred(*made, first.modes)


def is_kernel(obj: Any, kind: str | None) -> bool:
    """A plain function of queries, keys and values; another function is a factory."""
    if kind is not None or inspect.isclass(obj) or isinstance(obj, nn.Module) or not inspect.isroutine(obj):
        return kind == "kernel"
    try:
        names = form_of(obj, "").names
    except BadTarget:
        return False
    return {"query", "key", "value"} <= set(names)


def _attention(obj: Any, spec: str, target: Any, recipe: Recipe | None, declare: dict[str, str]) -> Inferred:
    built = "the given instance" if recipe is None else recipe.text
    if not callable(target):
        raise BadTarget(f"{spec}({built}) made {type(target).__name__}, expected something to call")
    form = form_of(target.forward if isinstance(target, nn.Module) else target, spec)
    form.extra["reset"] = declare.get("stateful")
    sizes, notes = _sized(target, recipe, form, declare)
    causal = named_causal(obj, [] if recipe is None else recipe.causal_flags(), form)
    dtypes = [declare["dtype"]] if "dtype" in declare else ["float32", "float64"]
    dtype, conventions = _in_first_dtype(target, form, sizes, dtypes, spec, declare, causal)
    seen = form.extra.get("heads")
    if seen and "heads" not in declare and sizes.heads != seen and not (recipe and "heads" in recipe.sizes()):
        sizes = replace(sizes, heads=seen, kv_heads=seen, head_width=sizes.widths[0] // seen)
    conventions |= {} if recipe is None else chosen_by_constructor(target, recipe.known(), text_of(target))
    imported = None if recipe is None else importing_code(spec)
    adapter = Inferred(target, "attention", form, sizes, built, imported, recipe, conventions, notes, dtype)
    adapter.modes = _modes(adapter)
    return adapter


def _sized(target: Any, recipe: Recipe | None, form: Form, declare: dict[str, str]) -> tuple[Sizes, list[str]]:
    """The sizes of a target that is made ready for probing, and what there is to say of it."""
    unread = form.extra["unread"]
    notes = [f"arguments of unknown meaning, left at their defaults: {', '.join(unread)}"] if unread else []
    sizes = sizes_of(target, {} if recipe is None else recipe.sizes())
    if isinstance(target, nn.Module):
        materialised(target.eval(), form, sizes)
        redrawn = redraw_degenerate(target)
        notes += [f"parameters that start degenerate were drawn anew: {', '.join(redrawn)}"] if redrawn else []
    heads = int(declare.get("heads", sizes.heads))
    return replace(sizes, heads=heads, kv_heads=int(declare.get("kv_heads", min(sizes.kv_heads, heads)))), notes


def _in_first_dtype(
    target: Any,
    form: Form,
    sizes: Sizes,
    dtypes: list[str],
    spec: str,
    declare: dict[str, str],
    causal: Convention | None,
) -> tuple[torch.dtype, dict[str, Convention]]:
    """Probe in the first dtype in which the plain call works; the error of the first where none does."""
    problem = None
    for name in dtypes:
        dtype = getattr(torch, name)
        if name != "float32" and isinstance(target, nn.Module):
            target.to(dtype)
        try:
            probe = Probe(target, form, sizes.widths, None, dtype, sizes.heads)
            conventions = observed(probe, spec, sizes.heads, declare, causal, sizes.head_width)
        except BadTarget as error:
            problem = problem or error
            continue
        told = {"dtype": Convention(name, "observed", "float32 was refused")} if name != dtypes[0] else {}
        return dtype, conventions | told
    assert problem is not None
    raise problem


def _kernel(obj: Any, spec: str, declare: dict[str, str], recipe: Recipe | None = None) -> Inferred:
    target = obj.eval() if isinstance(obj, nn.Module) else obj
    form, sizes = form_of(obj.forward if isinstance(obj, nn.Module) else obj, spec), Sizes((6, 6, 6), 4, 4)
    probe = Probe(target, form, sizes.widths, (4, 4), torch.float32, 4)
    conventions = observed(probe, spec, 4, declare, None, 6)
    built = "a function" if recipe is None else recipe.text
    adapter = Inferred(target, "kernel", form, sizes, built, importing_code(spec), recipe, conventions)
    adapter.modes = _modes(adapter)
    return adapter


def _modes(adapter: Inferred) -> tuple[str, ...]:
    """Training counts only where it draws nothing once dropout is 0."""
    module = adapter.module
    if module is None:
        return MODES[:2]
    set_dropout(module, 0.0)
    heads = (adapter.heads, adapter.kv_heads) if adapter.kind == "kernel" else None
    probe = Probe(module, adapter.form, adapter.widths, heads, adapter.dtype, adapter.heads)
    inputs = probe.inputs(probe.sources()[0], S=5)
    module.train()
    outputs = []
    for probe.seed in (0, 1):
        outputs.append(probe.output(inputs))
    module.eval()
    same = outputs[0] is not None and outputs[1] is not None and torch.equal(outputs[0], outputs[1])
    return MODES if same else MODES[:2]
