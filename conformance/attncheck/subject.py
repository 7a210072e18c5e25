"""What a check sees of a target: one protocol a kind, and the only polarity used inside, True = may attend.

N batch, T queries, S keys, D width, h heads, g key/value heads, d head width of queries and keys, e of values
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from attncheck.copies import copied
from attncheck.dropout import SET_DROPOUT, set_dropout
from attncheck.inputs import TIED, Inputs, drawn

MODES = ("eval", "eval no-grad", "train", "train no-grad")
WITH_GRAD = ("eval", "train")
MASK_AXES = ("TS", "N11S", "N1TS", "1hTS", "NhTS")
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Refused(Exception):
    """Raised by an adapter for a call that its target has no way to express: inapplicable, never a finding."""


class TimedOut(BaseException):
    """The time of an item is over. Not an Exception, so that no `except Exception` of a target swallows it."""


@dataclass(frozen=True)
class Convention:
    """One promise of a target. A `value` of None is an answer too: undecided."""

    value: str | None
    source: str = "declared"  # or observed
    evidence: str = ""

    @property
    def undecided(self) -> bool:
        """Whether probing could not tell, and the value is the nearest, if any."""
        return self.value is None or "undecided" in self.evidence or "no legal pattern" in self.evidence


@dataclass(frozen=True)
class Case:
    """One situation. `options` are the adapter's own keywords, `axes` those that the check asked for."""

    sources: str  # self: one tensor three times, clones: equal copies, memory: key is value, separate
    N: int
    T: int
    S: int
    mode: str = "eval"
    strided: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    axes: Mapping[str, Any] = field(default_factory=dict)
    config: int = 0
    seed: int = 0

    def __getitem__(self, axis: str) -> Any:
        return self.axes[axis]

    @property
    def tied(self) -> bool:
        """Whether the key at a position and the query there are one token."""
        return self.sources in TIED

    def but(self, **changes: Any) -> Case:
        return replace(self, **changes)

    def __str__(self) -> str:
        extra = {**self.options, **self.axes}
        parts = [f"N={self.N} T={self.T} S={self.S}", self.sources, self.mode, *(["strided"] if self.strided else [])]
        return ", ".join(parts + [f"{k}={v}" for k, v in extra.items()])


@dataclass(frozen=True)
class Answer:
    """What a target gave: output (N,T,Do), or (N,h,T,e) of a kernel; weights (N,h,T,S) or None."""

    output: Tensor
    weights: Tensor | None
    inputs: Inputs
    allowed: Tensor | None
    case: Case
    subject: Subject
    seed: int = 0  # of the global generator, before the call

    @property
    def out(self) -> Tensor:
        return self.output.detach().cpu()

    def masked_rows(self, rows_NT: Tensor | None) -> Answer:
        """The same with the outputs (N,T,Do) of some rows at 0."""
        if rows_NT is None or self.output.shape[:-1] != rows_NT.shape:
            return self
        return replace(self, output=self.output.masked_fill(rows_NT[..., None].to(self.output.device), 0.0))

    def narrowed(self, start: int, length: int) -> Answer:
        """The outputs of `length` queries from `start` on."""
        return replace(self, output=self.output.narrow(-2, start, length))


@dataclass(frozen=True)
class Refusal:
    """The exception of a refused call, as data; `unsupported` where the adapter has no way to express the call."""

    error: BaseException
    inputs: Inputs
    allowed: Tensor | None
    case: Case
    subject: Subject
    seed: int = 0

    @property
    def unsupported(self) -> bool:
        return isinstance(self.error, Refused)

    def __str__(self) -> str:
        text = " ".join(str(self.error).split())
        return f"{type(self.error).__name__}: {text[:300]}" if text else type(self.error).__name__


class AttentionAdapter(Protocol):
    """What an author of an adapter writes. Only `call` is required; the rest is read where it is there.

    width or widths (Dq, Dk, Dv), heads, kv_heads, module (an nn.Module, switched and cast by us),
    sources (which of self, clones, memory, separate it takes), masks (the axes that a mask may have, of
    MASK_AXES; empty where it takes none), options ({keyword of call: values}), conventions ({key: value}),
    weights() -> canonical projections or None, with_dropout(p) -> adapter, rebuilt(seed) -> the same before any call,
    undivided() -> the same with a width that its heads do not divide, and source(masks) -> code that defines `target`
    and `call` for these masks. A float mask is added to the scores where `mask` can be additive.
    """

    def call(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Any: ...


@dataclass
class Subject:
    """One built configuration of a target, under the canonical calling form of its kind."""

    adapter: Any
    kind: str
    widths: tuple[int, int, int]  # of query, key and value; of one head where kind is kernel
    heads: int
    kv_heads: int
    sources: tuple[str, ...]
    masks: tuple[str, ...]
    options: Mapping[str, tuple[Any, ...]]
    conventions: dict[str, Convention]
    modes: tuple[str, ...] = MODES
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    label: str = "the target"
    puzzle: str = ""  # what of its weights was not understood
    setup: tuple[str, ...] = ()  # code that a reproduction runs on `target` after building it
    twins: dict[Any, Any] = field(default_factory=dict, repr=False)  # by dtype, by dropout rate; its weights

    def says(self, key: str) -> str | None:
        convention = self.conventions.get(key)
        return None if convention is None else convention.value

    @property
    def causality(self) -> str:
        """The built-in one. Where it is a flag's to ask for, the convention tells of the flag's corner."""
        return "no" if "flag" in self.options.get("mask", ()) else self.says("causal") or "no"

    @property
    def module(self) -> nn.Module | None:
        module = getattr(self.adapter, "module", None)
        return module if isinstance(module, nn.Module) else None

    @property
    def prefix_only(self) -> bool:
        """Whether padding can only be said by lengths, so that it is at the end."""
        return bool(getattr(self.adapter, "prefix_only", False))

    @property
    def unread(self) -> tuple[str, ...]:
        """Arguments of the target that nobody knows how to give, so that they are left at their defaults."""
        return tuple(getattr(self.adapter, "unread", ()))

    def lacks(self, need: str) -> str | None:
        """Why a check that needs this cannot be asked here; None where it can."""
        sees_causality = "TS" in self.masks or self.causality != "no"
        positions = self.says("positions") or "none"
        there, why = {
            "weights": (self.says("weights") != "none", "returns no attention weights"),
            "mask": (bool(self.masks), "takes no mask"),
            "causality": (sees_causality, "is not causal and takes no (T,S) mask"),
            "window": (self.says("window") not in (None, "none"), "has no window"),
            "bias": (self.takes_bias, "takes no float mask that is added to the scores"),
            "memory": (bool({"memory", "separate"} & set(self.sources)), "takes no memory"),
            "module": (self.module is not None, "is no nn.Module"),
            "order": (positions == "none", f"has positions: {positions}"),
            "positions": (positions != "none", "has no positions"),
        }[need]
        return None if there else f"{self.label} {why}"

    @property
    def takes_bias(self) -> bool:
        """Whether a float mask is added to the scores, so that it may be finite."""
        said = getattr(self.adapter, "takes_bias", None)
        if said is not None:
            return bool(said)
        return "TS" in self.masks and ("additive" in self.options.get("mask", ()) or self.says("mask") == "additive")

    def pattern(self, T: int, S: int) -> Tensor:
        """The keys (T,S) that the target itself lets each query see, from its conventions. Not to be written into."""
        return pattern_of(self.causality, self.says("window") or "none", T, S)

    def visible(self, allowed: Tensor | None, case: Case) -> Tensor:
        """What each query may see after the mask and the target's own pattern, as (N,h,T,S)."""
        visible = self.pattern(case.T, case.S)
        if allowed is not None and self.says("causal_under_mask") == "replaced":
            visible = torch.ones_like(visible)
        if allowed is not None:
            visible = visible & (allowed.cpu() != -torch.inf if allowed.is_floating_point() else allowed.cpu())
        return visible.expand(case.N, self.heads, case.T, case.S)

    def draw(self, case: Case) -> Inputs:
        """Random inputs for a case."""
        heads = ((self.heads,), (self.kv_heads,), (self.kv_heads,)) if self.kind == "kernel" else ((), (), ())
        lengths = (case.T, case.S, case.S)
        shapes = [(case.N, *h, n, w) for h, n, w in zip(heads, lengths, self.widths, strict=True)]
        return drawn(case.sources, shapes, case.seed, self.dtype, self.device)

    def attempt(self, inputs: Inputs, allowed: Tensor | None, case: Case, seed: int = 0) -> Answer | Refusal:
        """Call the target once. Any exception is an answer."""
        inputs = inputs.strided() if case.strided else inputs
        given = None if allowed is None else allowed.to(self.device)
        # What was asked is kept apart from what the target may write into.
        allowed = None if allowed is None else allowed.clone()
        with self.mode(case):
            torch.default_generator.manual_seed(seed)
            try:
                self.start_anew()
                output, weights = _pair(self.adapter.call(*inputs.tensors(), given, **case.options))
            except (KeyboardInterrupt, TimedOut):
                raise
            except BaseException as error:
                return Refusal(error, inputs, allowed, case, self, seed)
        return Answer(output, weights, inputs, allowed, case, self, seed)

    def start_anew(self) -> None:
        """A target that declares `stateful` is told that the next call is a new sequence."""
        reset = self.says("stateful")
        if reset is not None:
            getattr(self.module, reset)()

    @contextlib.contextmanager
    def mode(self, case: Case) -> Iterator[None]:
        """Training and gradients as the case has them."""
        training = case.mode.startswith("train")
        if self.module is not None and self.module.training != training:
            self.module.train(training)
        with torch.set_grad_enabled(not case.mode.endswith("no-grad")):
            yield

    def at(self, dtype: torch.dtype) -> Subject:
        """The same target in another floating-point type, on a copy."""
        if dtype not in self.twins:
            setup = (*self.setup, *(() if self.module is None else (f"target.to({dtype})",)))
            twin = replace(self, adapter=copied(self.adapter), dtype=dtype, setup=setup, twins={})
            if twin.module is not None:
                twin.module.to(dtype)
            self.twins[dtype] = twin
        made: Subject = self.twins[dtype]
        return made

    def copied(self) -> Subject:
        """The same target as a deep copy."""
        setup = (*self.setup, "import copy", "target = copy.deepcopy(target)")
        return replace(self, adapter=copied(self.adapter), setup=setup, twins={})

    def reloaded(self) -> Subject | None:
        """The same target built anew under another seed, with the saved state loaded; None if it cannot be."""
        other = self.rebuilt(seed=1)
        if other is None or other.module is None or self.module is None:
            return None
        other.module.load_state_dict(self.module.state_dict(), strict=False)
        source = getattr(self.adapter, "source", None)
        made = "" if source is None else source(()).replace("manual_seed(0)", "manual_seed(1)")
        loading = "target.load_state_dict(kept.state_dict(), strict=False)"
        return replace(other, setup=(*self.setup, "kept = target", *made.splitlines(), *self.setup, loading))

    def rebuilt(self, seed: int = 0) -> Subject | None:
        """The same target built anew, as it is before its first call, its weights drawn under `seed`; None if it cannot
        be, as with an instance."""
        make = getattr(self.adapter, "rebuilt", None)
        adapter = None if make is None else make(seed)
        if adapter is None:
            return None
        if isinstance(getattr(adapter, "module", None), nn.Module):
            adapter.module.to(self.device, self.dtype)
        return replace(self, adapter=adapter, twins={})

    def undivided(self) -> Subject | BaseException | None:
        """The target with a width that its heads do not divide, or what building it raised; None if sizes are fixed."""
        make = getattr(self.adapter, "undivided", None)
        try:
            adapter = None if make is None else make()
        except (KeyboardInterrupt, TimedOut):
            raise
        except BaseException as error:
            return error
        if adapter is None:
            return None
        return replace(self, adapter=adapter, widths=adapter.widths, heads=adapter.heads, twins={})

    def with_dropout(self, p: float) -> Subject | None:
        """The same target that drops with probability p in training; None where it has no dropout."""
        if p not in self.twins:
            self.twins[p] = self._dropping(p)
        made: Subject | None = self.twins[p]
        return made

    def _dropping(self, p: float) -> Subject | None:
        if hasattr(self.adapter, "with_dropout"):
            adapter = self.adapter.with_dropout(p)
            return None if adapter is None else replace(self, adapter=adapter, twins={})
        setup = (*self.setup, *SET_DROPOUT.format(p=p).splitlines())
        twin = replace(self, adapter=copied(self.adapter), setup=setup, twins={})
        return twin if set_dropout(twin.module, p) else None


@lru_cache(maxsize=512)
def pattern_of(causal: str, window: str, T: int, S: int) -> Tensor:
    """The mask (T,S) of a causality and a window as they are declared: `bottom-right`, `prefix:3`, `5`, `-2:1`."""
    offset_TS = torch.arange(S) - torch.arange(T)[:, None] - (S - T if causal == "bottom-right" else 0)
    allowed_TS = offset_TS <= 0 if causal != "no" else torch.ones(T, S, dtype=torch.bool)
    if causal.startswith("prefix:"):
        allowed_TS = allowed_TS | (torch.arange(S) < int(causal.removeprefix("prefix:")))
    if window != "none":
        left, _, right = window.partition(":")
        first, last = (int(left), int(right)) if right else (1 - int(left), 0)
        allowed_TS = allowed_TS & (offset_TS >= first) & (offset_TS <= last)
    return allowed_TS


def _pair(result: Any) -> tuple[Tensor, Tensor | None]:
    """What a call gave, if it is such a pair; a tensor of two samples would unpack too."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise TypeError(f"the call gave {type(result).__name__}, expected (output, weights or None)")
    output, weights = result
    if not isinstance(output, Tensor):
        raise TypeError(f"the output is of type {type(output).__name__}, expected a tensor")
    if not isinstance(weights, Tensor | None):
        raise TypeError(f"the weights are of type {type(weights).__name__}, expected a tensor or None")
    return output, weights


def subject_of(adapter: Any, kind: str, declare: Mapping[str, str] = NOTHING, label: str = "the target") -> Subject:
    """Read what an adapter says of itself; `declare` wins over it. The one place that knows the defaults."""
    widths = getattr(adapter, "widths", None) or (getattr(adapter, "width", 0),) * 3
    heads = getattr(adapter, "heads", None) or 1
    said = getattr(adapter, "conventions", {})
    conventions = {k: v if isinstance(v, Convention) else Convention(v) for k, v in said.items()}
    modes = MODES if isinstance(getattr(adapter, "module", None), nn.Module) else MODES[:2]
    return Subject(
        adapter=adapter,
        kind=kind,
        widths=widths,
        heads=heads,
        kv_heads=getattr(adapter, "kv_heads", None) or heads,
        sources=tuple(getattr(adapter, "sources", None) or _sources(widths)),
        masks=tuple(getattr(adapter, "masks", MASK_AXES)),
        options=dict(getattr(adapter, "options", {})),
        conventions=conventions | {k: Convention(v) for k, v in declare.items()},
        modes=tuple(getattr(adapter, "modes", modes)),
        dtype=getattr(adapter, "dtype", torch.float32),
        label=label,
    )


def _sources(widths: tuple[int, int, int]) -> tuple[str, ...]:
    q, k, v = widths
    return (*(("self", "clones") if q == k == v else ()), *(("memory",) if k == v else ()), "separate")
