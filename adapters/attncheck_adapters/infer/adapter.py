"""The adapter of a target that nobody has described. What it calls is generated code, the same that a script prints."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from attncheck.copies import copied
from attncheck.dropout import set_dropout
from attncheck.readings import Reading
from attncheck.subject import MODES, Convention, Refused
from attncheck_adapters.infer.choices import Evidence
from attncheck_adapters.infer.code import call_code, canonical_masks
from attncheck_adapters.infer.family import candidates, certain, unplaced
from attncheck_adapters.infer.form import Form
from attncheck_adapters.infer.probe import T_, Probe
from attncheck_adapters.infer.recipe import Recipe
from attncheck_adapters.infer.settle import settle
from attncheck_adapters.infer.sizes import Sizes
from attncheck_adapters.infer.vocabulary import foreign_words
from attncheck_adapters.infer.words import text_of, values_of
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

    def puzzles(self) -> list[str]:
        """What stands in the way of reading the weights: parameters without a known place, and foreign computations."""
        if self.module is None:
            return []
        told = []
        strange = unplaced(self.module, self.sizes)
        if strange:
            told.append(f"parameters without a known place: {', '.join(strange)}")
        words = foreign_words(self.target, "", False)
        if words:
            told.append(f"it computes with {', '.join(words)}, which plain attention has no use for")
        return told or ["its parameters look like those of plain attention"]

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
            materialised(twin.target.eval(), self.form, self.sizes)
            redraw_degenerate(twin.target)
            set_dropout(twin.target, 0.0)
            twin.target.to(self.dtype).eval()
        return twin

    def with_dropout(self, p: float) -> Inferred | None:
        twin: Inferred = copied(self)
        twin.recipe = None if self.recipe is None else self.recipe.dropping(p)
        if twin.recipe is not None:
            twin.target = twin.recipe.make()
            materialised(twin.target.eval(), self.form, self.sizes)
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


def materialised(target: nn.Module, form: Form, sizes: Sizes) -> None:
    """Lazy modules get their parameters in a first call."""
    if any(isinstance(p, UninitializedParameter) for p in target.parameters()):
        seeded(settle, Probe(target, form, sizes.widths, None, torch.float32, sizes.heads), sizes.head_width)
