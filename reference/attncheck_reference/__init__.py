"""A Transformer written plainly, to be read and to be compared with. Needs torch alone."""

from attncheck_reference.attention import DotProductAttention
from attncheck_reference.masks import pattern
from attncheck_reference.multihead import MultiHeadAttention

__all__ = ["DotProductAttention", "MultiHeadAttention", "pattern"]
