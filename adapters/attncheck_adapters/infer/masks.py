"""Which mask argument takes which axes, and what True means there, found by calling the target.

N batch, T queries, S keys, h heads
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from attncheck.inputs import Inputs
from attncheck.masks import additive
from attncheck.subject import Convention
from attncheck_adapters.infer.code import NATIVE, handed_over
from attncheck_adapters.infer.probe import N_, S_, T_, Probe


def find_masks(probe: Probe, heads: int, declared: Mapping[str, str]) -> dict[str, Convention]:
    """Which argument takes a mask of which axes, and what True means in it. Undecided is an answer."""
    found = {}
    probe.form.masks = []
    for role, key in (("padding", "padding_mask"), ("mask", "mask")):
        argument = probe.form.names.get(role)
        if argument is not None:
            verdicts = {axes: _meanings(probe, argument, axes, heads) for axes in _axes_for(role, probe)}
            convention, encoding, taken = _settled(verdicts, argument)
            # A mask of the keys alone is one of tokens, whatever it is called.
            key = (
                "padding_mask"
                if convention.value in ("allowed", "blocked") and not any("T" in a for a in taken)
                else key
            )
            encoding = _handed(declared.get(key) or declared.get("mask" if role == "mask" else key), encoding)
            probe.form.masks += [(argument, axes, encoding) for axes in _without_twins(taken)]
            found[key] = convention if key == "mask" else replace(convention, value=PADDING.get(convention.value or ""))
    if "lengths" in probe.form.names:
        found["padding_mask"] = _lengths(probe, probe.form.names["lengths"])
    if probe.form.plain is not None:
        # What a mask that blocks nothing is, now that its meaning is known.
        probe.form.plain = next((m for m in probe.form.masks if m[0] == probe.form.plain[0]), probe.form.plain)
    probe.form.extra["both"] = _two_masks(probe, heads)
    probe.form.extra["bias"] = _adds_floats(probe)
    if found:
        return found
    unread = probe.form.extra.get("unread", ())
    told = f"undecided: it may be one of {', '.join(unread)}" if unread else "no argument has the name of a mask"
    return {"mask": Convention(None if unread else "none", "observed", told)}


def _lengths(probe: Probe, argument: str) -> Convention:
    """How many keys of each sample are real, which come first."""
    inputs = _unequal_inputs(probe, probe.sources()[-1])
    S = inputs.key.shape[-2]
    moved = probe.movement(inputs, **{argument: torch.full((N_,), S - 2)})
    if moved is None:
        return Convention(None, "observed", f"{argument}: lengths (N) were refused")
    if inputs.tied:
        moved = moved.masked_fill(torch.eye(S, dtype=torch.bool), 0.0)  # a token is its own query
    if not bool((moved[..., -2:] == 0).all()) or not bool((moved[..., : S - 2] > 0).any()):
        return Convention(None, "observed", f"{argument} is taken, but lengths have no clear effect")
    probe.form.masks.append((argument, "N", "allowed"))
    return Convention("real", "observed", f"{argument}: of keys beyond the length of a sample none acts")


def _two_masks(probe: Probe, heads: int) -> list[tuple[str, str, str]]:
    """One native form of each mask argument, where a call that gives both, blocking nothing, is taken."""
    chosen = {argument: (argument, axes, encoding) for argument, axes, encoding in reversed(probe.form.masks)}
    if len(chosen) < 2:
        return []
    inputs = _unequal_inputs(probe, probe.sources()[-1])
    nothing = torch.ones(1, 1, 1, inputs.key.shape[-2], dtype=torch.bool)
    given = {
        argument: handed_over(nothing, axes, encoding, heads, inputs) for argument, axes, encoding in chosen.values()
    }
    return list(chosen.values()) if probe.output(inputs, **given) is not None else []


def _unequal_inputs(probe: Probe, sources: str) -> Inputs:
    """With more keys than queries, where that is taken at all."""
    return probe.inputs(sources, S=S_ if probe.form.extra.get("unequal", True) else T_)


def _adds_floats(probe: Probe) -> bool:
    """Whether a float mask (T,S) is a bias: a little of it does far less than -inf does."""
    argument = next((a for a, axes, encoding in probe.form.masks if axes == "TS" and encoding == "additive"), None)
    if argument is None:
        return False
    inputs = _unequal_inputs(probe, probe.sources()[-1])
    outputs = []
    for value in (0.0, -1e-3, -torch.inf):
        mask = torch.zeros(T_, inputs.key.shape[-2], dtype=probe.dtype)
        mask[:, 0] = value
        outputs.append(probe.output(inputs, **{argument: mask}))
    plain, little, blocked = outputs
    if plain is None or little is None or blocked is None:
        return False
    moved, most = (little - plain).abs().max(), (blocked - plain).abs().max()
    return bool(0 < moved < most / 10)


def mask_replaces_pattern(probe: Probe, heads: int) -> bool:
    """Whether a mask that blocks nothing takes the place of the target's own triangle."""
    fitting = [m for m in probe.form.masks if "T" in m[1]]
    if not fitting:
        return False
    argument, axes, encoding = fitting[0]
    inputs = probe.inputs(probe.sources()[0], S=T_)
    nothing = torch.ones(1, 1, T_, T_, dtype=torch.bool)
    moved = probe.movement(inputs, **{argument: handed_over(nothing, axes, encoding, heads, inputs)})
    return moved is not None and bool((moved > 0).all())


PADDING = {"allowed": "real", "blocked": "padding", "additive": "additive"}


def _handed(declared: str | None, observed: str) -> str:
    """How a mask is handed over: as was declared, in integers where only those are taken."""
    meaning = {"real": "allowed", "padding": "blocked"}.get(declared or "", declared)
    integers = observed.startswith("int") and meaning in ("allowed", "blocked")
    return f"int-{meaning}" if integers else meaning or observed


def _settled(verdicts: dict[str, dict[str, str]], argument: str) -> tuple[Convention, str, list[str]]:
    """The meaning of one argument, how to encode it, and the axes that it takes.

    bool first, then 0 and -inf, then 0 and 1; where axes disagree the majority stands and the check complains.
    """
    for encoding in ("bool", "additive", "int"):
        told = {axes: v[encoding] for axes, v in verdicts.items() if v.get(encoding) in ("allowed", "blocked")}
        if not told:
            continue
        values = list(told.values())
        meaning = max(dict.fromkeys(values), key=values.count)
        where = ", ".join(f"{axes}: {value}" for axes, value in told.items())
        if encoding == "additive":
            return (
                Convention("additive", "observed", f"{argument} hides keys by -inf and not by bool ({where})"),
                encoding,
                list(told),
            )
        evidence = f"{argument}: edited keys act where {'True' if meaning == 'allowed' else 'False'} stands ({where})"
        native = f"int-{meaning}" if encoding == "int" else meaning
        return Convention(meaning, "observed", evidence), native, list(told)
    taken = [axes for axes, v in verdicts.items() if "none" in v.values()]
    if taken:
        return (
            Convention(None, "observed", f"{argument} is taken ({', '.join(taken)}), but True has no clear effect"),
            "allowed",
            taken,
        )
    return Convention(None, "observed", f"{argument}: no mask of {', '.join(verdicts)} was accepted"), "allowed", []


def _axes_for(role: str, probe: Probe) -> list[str]:
    if role == "padding":
        return ["NS", "N11S"]
    kernel = ["TS", "N1TS", "NhTS", "1hTS", "N11S", "NTS"]
    return kernel if probe.heads else [*kernel, "(Nh)TS", "N1S", "hTS", "NS", "TSN", "TSN1"]


def _meanings(probe: Probe, argument: str, axes: str, heads: int) -> dict[str, str]:
    """For each encoding that is accepted: allowed, blocked or none."""
    across = next((s for s in probe.sources() if s in ("memory", "separate")), None)
    found = {} if across is None else _meanings_at(probe, argument, axes, heads, across)
    # What lies along the wrong axis is taken where both have one length.
    return found or (_meanings_at(probe, argument, axes, heads, "self") if "self" in probe.sources() else {})


def _meanings_at(probe: Probe, argument: str, axes: str, heads: int, sources: str) -> dict[str, str]:
    inputs = _unequal_inputs(probe, sources)
    N, T, S = N_, T_, inputs.key.shape[-2]
    mask = _test_mask(axes, heads, N, T, S)
    native = handed_over(mask, axes, "allowed", heads, inputs).contiguous()
    plain = probe.movement(inputs)
    # What the target itself hides says nothing of the mask.
    acting = torch.ones(N, T, S, dtype=torch.bool) if plain is None or not plain.any() else plain > 0
    found: dict[str, str] = {}
    for strict in (True, False):
        for encoding in ("bool", "additive", "int"):
            given = {"bool": native, "int": native.long()}.get(encoding)
            given = additive.encode(native, probe.dtype) if given is None else given
            moved = probe.movement(inputs, **{argument: given})
            if moved is not None:
                found[encoding] = _verdict(moved, mask.expand(N, heads, T, S), acting, sources == "self", strict)
            if found.get(encoding) in ("allowed", "blocked"):
                return found
    return found


def _test_mask(axes: str, heads: int, N: int, T: int, S: int) -> Tensor:
    """Half True, with both values for each query; equal over samples and heads, so that only its meaning is asked."""
    rows = T if "T" in axes else 1
    mask = torch.rand((1, 1, rows, S), generator=torch.Generator().manual_seed(11)) < 0.5
    first = torch.arange(rows)[:, None].expand(1, 1, -1, -1)
    mask = mask.scatter(-1, first % S, True).scatter(-1, (first + 1) % S, False)
    return mask.expand(N if "N" in axes else 1, heads if "h" in axes else 1, -1, -1)


def _verdict(moved_NTS: Tensor, mask_NhTS: Tensor, acting_NTS: Tensor, tied: bool, strict: bool) -> str:
    """True is allowed where its keys act far more strongly than those of False, blocked the other way round.

    strict: so far that the others hardly act at all; a bool that is added to the scores as 0 and 1 only prefers keys.
    """
    true = mask_NhTS.any(1)
    judged = acting_NTS & ~torch.eye(true.shape[-1], dtype=torch.bool) if tied else acting_NTS
    # A query that nothing moves may be a padded one, whose output is set to zero.
    judged = judged & (moved_NTS > 0).any(-1, keepdim=True)
    acts, rests = moved_NTS[true & judged], moved_NTS[~true & judged]
    if not len(acts) or not len(rests):
        return "none"
    strong, weak, factor = float(acts.median()), float(rests.median()), 1e3 if strict else 4.0
    return "allowed" if strong > factor * weak else "blocked" if weak > factor * strong else "none"


def _without_twins(taken: list[str]) -> list[str]:
    """One native form for each kind of mask, the first that was accepted."""
    kept: dict[str, str] = {}
    for axes in taken:
        kept.setdefault(NATIVE[axes][1], axes)
    return list(kept.values())
