"""Meeting a class that nobody has described: build it, find out how it is called, and what it means.

Nothing is guessed silently: what was observed stands in the conventions with its evidence.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from attncheck.copies import copied, copied_module
from attncheck.dropout import set_dropout
from attncheck.readings import Reading
from attncheck.spec import BadTarget, importing_code
from attncheck.subject import MODES, Convention, Refused
from attncheck_adapters.infer.code import call_code, canonical_masks
from attncheck_adapters.infer.construct import OTHER_SIZES, SIZES, build, plan
from attncheck_adapters.infer.conventions import named_causal, observed
from attncheck_adapters.infer.family import Evidence, candidates, certain
from attncheck_adapters.infer.form import Form, form_of
from attncheck_adapters.infer.probe import T_, Probe
from attncheck_adapters.infer.recipe import Recipe
from attncheck_adapters.infer.settle import settle
from attncheck_adapters.infer.sizes import Sizes, sizes_of
from attncheck_adapters.infer.vocabulary import foreign_words
from attncheck_adapters.infer.words import chosen_by_constructor, text_of, values_of
from attncheck_adapters.seeded import REDRAW, redraw_degenerate, seeded


@dataclass
class Inferred:
    """The adapter of an inferred target. Its `call` is generated code, the same that a reproduction prints."""

    target: Any
    kind: str
    form: Form
    sizes: Sizes
    built: str
    imported: str | None  # code that imports the target as `Target`; None where only the object is known
    recipe: Recipe | None
    conventions: dict[str, Convention]
    notes: list[str] = field(default_factory=list)
    dtype: torch.dtype = torch.float32
    modes: tuple[str, ...] = MODES[:2]

    def __post_init__(self) -> None:
        self.widths = self.sizes.widths
        self.heads, self.kv_heads = self.sizes.heads, self.sizes.kv_heads
        self.masks = canonical_masks(self.form)
        self.options: dict[str, tuple[Any, ...]] = {"weights": (False, True)} if "weights" in self.form.names else {}
        self.options |= {"masks": ("one", "both")} if self.form.extra.get("both") else {}
        self.options |= {"causal": ("mask", "flag")} if self.form.flag else {}
        self.prefix_only = {axes for _, axes, _ in self.form.masks} == {"N"}
        self.takes_bias = bool(self.form.extra.get("bias"))
        self.namespace = self.compiled()

    @property
    def sources(self) -> tuple[str, ...]:
        """Ways of calling it: those of the probe, less unequal lengths where they were refused."""
        found = Probe(self.target, self.form, self.widths, None, self.dtype, self.heads).sources()
        if self.kind == "kernel":
            return "memory", "separate"
        return (
            found
            if self.form.extra.get("unequal", True)
            else tuple(s for s in found if s in ("self", "clones")) or found
        )

    @property
    def unread(self) -> tuple[str, ...]:
        """Arguments of a meaning that is not known, which are left at their defaults."""
        return tuple(self.form.extra["unread"])

    @property
    def module(self) -> nn.Module | None:
        return self.target if isinstance(self.target, nn.Module) else None

    def call(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, **options: Any) -> Any:
        if allowed is not None and allowed.shape[-1] != key.shape[-2]:
            raise Refused("a mask of these axes is made by the generated call, which does not fit such a mask")
        self.namespace["target"] = self.target
        return self.namespace["call"](query, key, value, allowed, **options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Inferred:
        twin = copy.copy(self)
        twin.target = copy.deepcopy(self.target, memo)
        twin.namespace = self.compiled()
        return twin

    def compiled(self) -> dict[str, Any]:
        """The generated call; what it cannot express is for us a refusal and for a reader of the script an error."""
        namespace: dict[str, Any] = {"torch": torch, "NotImplementedError": Refused}
        exec(call_code(self.form, self.heads), namespace)
        return namespace

    def weights(self) -> list[Reading] | None:
        """The ways in which the parameters can be read as the reference's, the likeliest first."""
        if self.kind == "kernel":
            return [Reading({})]
        if self.module is None:
            return None
        return list(candidates(self.module, self.sizes, self._evidence()))

    def certain(self) -> Reading | None:
        """The reading of a class of whose design there is no doubt, so that other outputs are a finding."""
        if self.module is None or self.kind == "kernel":
            return None
        reading = certain(self.module, self.sizes, self._evidence())
        capped = "softcap" in self.conventions
        return reading if reading and foreign_words(self.target, reading.told, capped) == [] else None

    def _evidence(self) -> Evidence:
        known = {} if self.recipe is None else self.recipe.known()
        said = self.conventions.get("positions")
        placed = said is None or said.value != "none" or "speaks of no" in said.evidence
        rotated = int(self.form.given[""]) if "" in self.form.given else None
        return Evidence(text_of(self.target), values_of(self.target, known), rotated, placed, self._unused())

    def _unused(self) -> frozenset[str]:
        """Parameters without a gradient, where some arguments are left at their defaults."""
        assert self.module is not None
        probe = Probe(self.target, self.form, self.widths, None, self.dtype, self.heads)
        probe.grad = True
        output = probe.output(probe.inputs(probe.sources()[-1], S=T_)) if self.unread else None
        if output is None or not output.requires_grad:
            return frozenset()
        named = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        try:
            grads = torch.autograd.grad(output.square().sum(), list(named.values()), allow_unused=True)
        except RuntimeError:  # what it changes in place is a finding, and not ours to stumble over
            return frozenset()
        return frozenset(n for n, g in zip(named, grads, strict=True) if g is None)

    def rebuilt(self, seed: int) -> Inferred | None:
        """The same built anew; None of an instance or a function."""
        return None if self.recipe is None else self._built_by(self.recipe, seed)

    def undivided(self) -> Inferred | None:
        """With a width that the heads do not divide; None where the constructor takes none of these, or a head's."""
        recipe = None if self.recipe is None else self.recipe.undivided()
        if recipe is None:
            return None
        twin = self._built_by(recipe, 0)
        twin.widths, twin.heads = (recipe.sizes()["width"],) * 3, recipe.sizes()["heads"]
        return twin

    def _built_by(self, recipe: Recipe, seed: int) -> Inferred:
        twin = copy.copy(self)
        twin.recipe, twin.target, twin.namespace = recipe, recipe.make(seed), self.compiled()
        if isinstance(twin.target, nn.Module):
            _materialised(twin.target.eval(), self.form, self.sizes)
            redraw_degenerate(twin.target)
            set_dropout(twin.target, 0.0)
            twin.target.to(self.dtype).eval()
        return twin

    def with_dropout(self, p: float) -> Inferred | None:
        twin: Inferred = copied(self)
        twin.recipe = None if self.recipe is None else self.recipe.dropping(p)
        if twin.recipe is not None:
            twin.target = twin.recipe.make()
            _materialised(twin.target.eval(), self.form, self.sizes)
            redraw_degenerate(twin.target)
            twin.target.to(self.dtype)
            return twin
        return twin if set_dropout(twin.module, p) else None

    @property
    def source(self) -> Any:
        """Code that imports and builds the target and defines `call`; None where the target was given as an object."""
        if self.imported is None:
            return None
        built = "target = Target" if self.recipe is None else self.recipe.code
        redraw = f"\n{REDRAW}" if any("drawn anew" in note for note in self.notes) else ""
        redraw += "" if self.dtype == torch.float32 or self.module is None else f"\ntarget.to({self.dtype})"
        return lambda masks: f"{self.imported}\n{built}{redraw}\n\n\n{call_code(self.form, self.heads, masks)}"


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
    more = (_further(obj, spec, target, recipe, declare) for recipe, target in others)
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


def _further(obj: Any, spec: str, target: Any, recipe: Recipe, declare: dict[str, str]) -> Inferred | None:
    """A second or third configuration; None where the class builds it but does not take it."""
    try:
        return _attention(obj, spec, target, recipe, declare)
    except BadTarget:
        return None


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
    if isinstance(target, nn.Module):
        target.eval()
    form = form_of(target.forward if isinstance(target, nn.Module) else target, spec)
    form.extra["reset"] = declare.get("stateful")
    unread = form.extra["unread"]
    notes = [f"arguments of unknown meaning, left at their defaults: {', '.join(unread)}"] if unread else []
    sizes = sizes_of(target, {} if recipe is None else recipe.sizes())
    if isinstance(target, nn.Module):
        _materialised(target, form, sizes)
        redrawn = redraw_degenerate(target)
        notes += [f"parameters that start degenerate were drawn anew: {', '.join(redrawn)}"] if redrawn else []
    heads = int(declare.get("heads", sizes.heads))
    sizes = replace(sizes, heads=heads, kv_heads=int(declare.get("kv_heads", min(sizes.kv_heads, heads))))
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


def _materialised(target: nn.Module, form: Form, sizes: Sizes) -> None:
    """Lazy modules get their parameters in a first call."""
    if any(isinstance(p, UninitializedParameter) for p in target.parameters()):
        seeded(settle, Probe(target, form, sizes.widths, None, torch.float32, sizes.heads), sizes.head_width)


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
