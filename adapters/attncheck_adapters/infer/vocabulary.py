"""Whether a class is made of what plain attention is made of, so that other numbers than attention's are a finding.

A class that computes with anything else may be of another design: of it, nothing is claimed.
"""

from __future__ import annotations

import ast
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncheck_adapters.infer.words import sources_of

# Names of torch that projecting, splitting, scoring, masking, normalising, dropping and merging are written with.
PLAIN = frozenset((
    "Linear", "Dropout", "Parameter", "Module", "ModuleList", "ModuleDict", "Sequential", "Identity",
    "Embedding", "LayerNorm", "RMSNorm", "LazyLinear", "linear", "dropout", "softmax", "matmul", "bmm",
    "baddbmm", "einsum", "scaled_dot_product_attention", "mm", "addmm", "mul", "add", "sub", "div", "type_as",
    "view", "reshape", "view_as", "unflatten", "flatten", "transpose", "permute", "mT", "T", "t", "swapaxes",
    "swapdims", "movedim", "contiguous", "chunk", "tensor_split", "unbind", "stack", "cat", "concat",
    "concatenate", "unsqueeze", "squeeze", "expand", "expand_as", "repeat", "repeat_interleave", "narrow",
    "select", "index_select", "masked_fill", "masked_fill_", "where", "masked_softmax", "logical_not",
    "logical_and", "logical_or", "eq", "ne", "lt", "le", "gt", "ge", "bool", "int", "long", "float", "double",
    "half", "to", "type", "dtype", "device", "size", "shape", "dim", "ndim", "numel", "item",
    "is_floating_point", "finfo", "iinfo", "min", "max", "amax", "tril", "triu", "tril_", "triu_",
    "triu_indices", "ones", "zeros", "full", "empty", "ones_like", "zeros_like", "full_like", "empty_like",
    "new_ones", "new_zeros", "new_full", "new_empty", "arange", "tensor", "as_tensor", "sqrt", "rsqrt", "pow",
    "sum", "mean", "keepdim", "any", "all", "isnan", "isinf", "clamp", "requires_grad", "grad", "detach",
    "clone", "data", "weight", "bias", "in_features", "out_features", "training", "eval", "train", "p",
    "register_buffer", "register_parameter", "parameters", "named_parameters", "modules", "children", "init",
    "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "normal_", "uniform_", "zeros_",
    "ones_", "constant_", "trunc_normal_", "orthogonal_", "fill_", "copy_", "zero_", "Tensor", "FloatTensor",
    "BoolTensor", "LongTensor", "nn", "functional", "F", "jit", "no_grad", "float32", "float16", "bfloat16",
    "float64", "multi_head_attention_forward", "get_default_dtype", "cos", "sin", "outer", "polar",
    "view_as_real", "view_as_complex", "complex64", "real", "imag", "inf", "nan", "is_causal", "nan_to_num",
    "masked_scatter", "subtract", "multiply", "divide", "true_divide", "get", "set_", "is_available", "cuda",
    "manual_seed", "randn", "rand", "Softmax", "range", "attention", "MultiheadAttention", "embedding",
    "complex", "Optional", "tensordot", "index_copy_", "index_fill_", "slopes", "log2", "floor", "ceil", "neg",
    "negative", "apply", "len", "format", "name", "names", "abs", "export", "ignore", "script", "split",
))  # fmt: skip
# What a known part of the family needs, by a word of the part's reading.
OF_PART = {
    "gated": {"sigmoid", "Sigmoid"}, "the output times": {"tanh"}, "length 1": {"normalize", "norm"},
    "times": {"exp", "log", "exp_", "softplus"}, "buckets": {"log", "abs"},
    "normalised": {"var", "rms_norm", "layer_norm"},
}  # fmt: skip


def foreign_words(target: Any, told: str, capped: bool) -> list[str] | None:
    """Names of torch in the target's own classes that plain attention has no use for; None where there is no source.

    told: how its parameters were read.  capped: whether a cap of the scores is known.
    """
    known = PLAIN.union(*(words for part, words in OF_PART.items() if part in told), {"tanh"} if capped else set())
    found: list[str] = []
    sources = sources_of(target)
    for text in sources.values():
        if text is None:
            return None
        found += [name for name in _names(ast.parse(text)) if _of_torch(name) and name not in known]
    return list(dict.fromkeys(found)) if sources else None


def _names(tree: ast.AST) -> list[str]:
    """Attributes of anything but `self`, and names that are called."""
    found = []
    for node in ast.walk(tree):
        own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        if isinstance(node, ast.Attribute) and not own:
            found.append(node.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.append(node.func.id)
    return found


def _of_torch(name: str) -> bool:
    return any(hasattr(owner, name) for owner in (torch, Tensor, F, nn)) and not name.startswith("__")
