"""Every reading of a module's parameters that the reference can be given: projections, and the parts beside them.

D width, h heads, g key/value heads, d head width
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from torch import Tensor, nn

from attncheck.readings import Reading
from attncheck_adapters.infer import choices
from attncheck_adapters.infer.choices import Choice, Evidence
from attncheck_adapters.infer.layout import readings
from attncheck_adapters.infer.matrices import named_beyond_doubt, roleless
from attncheck_adapters.infer.parts import Parts, parts_of
from attncheck_adapters.infer.sizes import Sizes

SCALED = re.compile(r"rope_scaling|ntk|yarn|mrope|scaling_factor|xpos", re.I)  # rotations of a family of their own


def candidates(module: nn.Module, sizes: Sizes, evidence: Evidence) -> Iterator[Reading]:
    """The likeliest first: plain projections, each with every choice of the parts that are there."""
    parts = parts_of(module, sizes)
    # What does nothing in a plain call may belong to an argument that is left at its default.
    for unused in ((), evidence.unused) if evidence.unused else ((),):
        projections = readings(module, sizes, parts.taken | set(unused))
        for number, combination in enumerate(combinations(parts, sizes, evidence, module)):
            # Many choices of parts leave time for the likelier projections only.
            for weights in projections if number < 8 else projections[:8]:
                made = _joined(weights, combination, sizes.heads)
                if made is not None:
                    yield made


def certain(module: nn.Module, sizes: Sizes, evidence: Evidence) -> Reading | None:
    """The reading that names and shapes leave no doubt of, whatever the outputs are; None where there is any.

    Slopes, learned factors and angles are taken for known only where they can be seen.
    """
    parts = parts_of(module, sizes)
    if parts.scales or parts.factors or not choices.positions_are_seen(module, evidence):
        return None
    tables = all(list(choices.of_table(n, t, sizes.heads, evidence, module)) for n, t in parts.tables.items())
    around = [n for n in parts.norms if n.role == ""]
    halves = {n.role for n in parts.norms} & {"q", "k"}
    clear = tables and not around and len(halves) != 1 and set(parts.extra) in ({"k", "v"}, set())
    if not clear or SCALED.search(evidence.text) or not named_beyond_doubt(module, sizes, parts.taken):
        return None
    found = next(candidates(module, sizes, evidence), None)
    # Heads of values as wide as those of queries: pairs of maps in one have others.
    wide = found is not None and len(found.weights["q.weight"]) == len(found.weights["v.weight"]) * (
        len(found.weights["q.weight"]) // len(found.weights["k.weight"])
    )
    return found if wide else None


def unplaced(module: nn.Module, sizes: Sizes) -> list[str]:
    """Names of maps that no reading has a role for."""
    parts = parts_of(module, sizes)
    return [] if named_beyond_doubt(module, sizes, parts.taken) else roleless(module, sizes, parts.taken)


def combinations(parts: Parts, sizes: Sizes, evidence: Evidence, module: nn.Module) -> Iterator[tuple[Choice, ...]]:
    return itertools.islice(itertools.product(*choices.of_all(parts, sizes, evidence, module)), 400)


def _joined(weights: Mapping[str, Tensor], chosen: tuple[Choice, ...], heads: int) -> Reading | None:
    """Projections with one choice of every part; None where they do not go together."""
    settings = {k: v for c in chosen for k, v in c.settings.items()}
    made = {**weights, **{k: v for c in chosen for k, v in c.weights.items()}}
    for factor in (c.factor for c in chosen if c.factor is not None):
        if "o.weight" not in made or factor.numel() not in (1, len(made["o.weight"])):
            return None
        made |= {"o.weight": made["o.weight"] * factor.reshape(-1, 1)}
        made |= {"o.bias": made["o.bias"] * factor} if "o.bias" in made else {}
    out, over, k = made.get("o.weight", made["v.weight"]), settings.get("qk_norm_over"), made.get("k_norm.weight")
    d = made["q.weight"].shape[0] // heads
    if k is not None:
        rows = len(made["k.weight"])
        if k.numel() != (d if over == "head" else rows) or (over == "each" and len(k) * d != rows):
            return None
    if settings.get("residual") and len(out) != made["q.weight"].shape[1]:
        return None
    rotary = settings.get("rotary")
    if rotary is not None and rotary.width != d:
        if rotary.turned > d:
            return None
        settings["rotary"] = replace(rotary, width=d, part=rotary.turned)
    says = {k: v for c in chosen for k, v in c.says.items()}
    return Reading(made, settings, says, ", ".join(c.told for c in chosen if c.told))
