"""What a user may declare of a target: the keys, and the values of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attncheck.valid import BadSetting, closest, one_of

DTYPES = ("float32", "float64", "float16", "bfloat16")
DECLARED = {
    "mask": ("allowed", "blocked", "additive"),
    "padding_mask": ("real", "padding"),
    "fully_masked": ("nan", "zero", "uniform", "unmasked", "raise", "undefined"),
    "causal": ("no", "top-left", "bottom-right", "prefix:K"),
    "causal_under_mask": ("kept", "replaced"),
    "window": (),
    "layout": ("batch-first", "seq-first", "heads", "heads-last"),
    "scale": (),
    "softcap": (),
    "positions": ("none", "absolute", "relative"),
    "weights": ("none", "per-head", "averaged"),
    "weight_sum": ("one", "below-one", "any"),
    "stateful": (),
    "design": ("standard", "other"),
    "dtype": DTYPES,
    "heads": (),
    "kv_heads": (),
} | dict.fromkeys(
    ("tied", "pad_id", "eos_id", "loss_shift", "norm", "final_norm", "embed_scale", "padding_idx", "decay_groups"), ()
)


def _is_above_zero(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


NUMBERS: dict[str, Callable[[str], bool]] = {
    "scale": lambda text: text in ("1/sqrt(d)", "1/d", "learned") or _is_above_zero(text),
    "softcap": _is_above_zero,
    "heads": lambda text: text.isdigit() and int(text) > 0,
    "kv_heads": lambda text: text.isdigit() and int(text) > 0,
}
EXPECTED = {
    "scale": "a number above 0, 1/sqrt(d), 1/d or learned", "softcap": "a number above 0, as 50",
    "heads": "a whole number, as 8", "kv_heads": "a whole number, as 2",
}  # fmt: skip


def declared(pairs: Mapping[str, Any]) -> dict[str, str]:
    """Check the declared keys and values."""
    for key, value in pairs.items():
        one_of("declare", key, DECLARED)
        known = DECLARED[key]
        if known and value not in known and not (key == "causal" and str(value).startswith("prefix:")):
            raise BadSetting(f"declare: {key}={value!r} is not known{closest(str(value), known)}")
        if key == "causal" and str(value).startswith("prefix:") and not str(value)[7:].isdigit():
            raise BadSetting(f"declare: causal={value!r}: expected prefix:K with a number K")
        if key in NUMBERS and not NUMBERS[key](str(value)):
            raise BadSetting(f"declare: {key}={value!r}: expected {EXPECTED[key]}")
        if key == "window" and not _is_window(str(value)):
            raise BadSetting(f"declare: window={value!r}: expected W, as 4, or L:R, as -2:1")
    return {k: str(v) for k, v in pairs.items()}


def _is_window(text: str) -> bool:
    left, colon, right = text.partition(":")
    return left.lstrip("-").isdigit() and (not colon or right.lstrip("-").isdigit())
