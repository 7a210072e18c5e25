"""A Transformer written plainly, to be read and to be compared with. Needs torch alone."""

from attncheck_reference.attention import DotProductAttention
from attncheck_reference.masks import pattern
from attncheck_reference.multihead import MultiHeadAttention
from attncheck_reference.norms import LayerNorm, RMSNorm, unit
from attncheck_reference.positions import Alibi, Rotary, alibi_slopes
from attncheck_reference.tables import BucketBias, OffsetBias, TableBias

__all__ = [
    "Alibi", "BucketBias", "DotProductAttention", "LayerNorm", "MultiHeadAttention", "OffsetBias", "RMSNorm", "Rotary",
    "TableBias", "alibi_slopes", "pattern", "unit",
]  # fmt: skip
