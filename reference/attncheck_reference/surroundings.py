"""What stands around attention in a block: a norm before it, a gate on what it mixed, the residual, a norm after it.

N batch, T queries, S keys, D width, h heads, e head width of values, E = h * e
"""

from torch import Tensor, nn

from attncheck_reference.norms import norm
from attncheck_reference.refusals import one_of

MEMORY = ("tied", "never", "same", "own")


class Surroundings(nn.Module):
    """The steps `enter`, `norm_memory`, `gated` and `leave` of a multi-head attention.

    pre_norm: "layer" or "rms" on the query (Xiong et al. 2020, "On Layer Normalization in the Transformer
    Architecture", table 1).  pre_norm_memory: on key and value, "tied", where they are the query's own tensor; "never";
    "same", always, by the query's norm; "own", tied or else by a norm of their own, `memory_norm`.
    gate: sigmoid(gate(query)) times what was merged, for each "feature" or each "head", the query being the normed one
    (Qiu et al. 2025, "Gated Attention for Large Language Models", section 2; Jumper et al. 2021, "AlphaFold",
    supplement, algorithm 7).
    residual: the query, not normed, is added to the output (He et al. 2016, "Deep Residual Learning", equation 1).
    post_norm: "layer" or "rms" behind that (Vaswani et al. 2017, section 3.1).
    """

    pre_norm_memory: str
    residual: bool
    pre_norm: nn.Module
    memory_norm: nn.Module
    post_norm: nn.Module
    gate: nn.Linear | None

    def set_gate(self, kind: str, width: int, heads: int, e: int) -> None:
        one_of("gate", kind, ("none", "feature", "head"))
        self.gate = None if kind == "none" else nn.Linear(width, heads * e if kind == "feature" else heads)

    def set_surroundings(
        self, widths: tuple[int, int, int, int], pre: str, memory: str, post: str, eps: float | None, residual: bool
    ) -> None:
        """widths: of query, key, value and output."""
        width, key, value, out = widths
        one_of("pre_norm_memory", memory, MEMORY)
        if residual and out != width:
            raise ValueError(f"residual=True: expected an output as wide as the query, {width}, not {out}")
        if (memory == "same" and not width == key == value) or (memory == "own" and key != value):
            raise ValueError(f"pre_norm_memory={memory!r}: expected one width for one norm, not {(width, key, value)}")
        self.pre_norm_memory, self.residual = memory, residual
        self.pre_norm = norm("pre_norm", pre, width, eps=eps)
        self.memory_norm = norm("pre_norm", pre if memory == "own" else "none", key, eps=eps)
        self.post_norm = norm("post_norm", post, out, eps=eps)

    def enter(self, query_NTD: Tensor, key_NSD: Tensor, value_NSD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What is projected: the query normed, and key and value as their rule has it."""
        normed_NTD: Tensor = self.pre_norm(query_NTD)
        tied = self.pre_norm_memory != "never"
        key_NSD, value_NSD = (
            normed_NTD if tied and x is query_NTD else self.norm_memory(x) for x in (key_NSD, value_NSD)
        )
        return normed_NTD, key_NSD, value_NSD

    def norm_memory(self, x_NSD: Tensor) -> Tensor:
        """A key or value that is not the query itself."""
        normed_NSD: Tensor = self.pre_norm(x_NSD) if self.pre_norm_memory == "same" else self.memory_norm(x_NSD)
        return normed_NSD

    def gated(self, merged_NTE: Tensor, query_NTD: Tensor) -> Tensor:
        if self.gate is None:
            return merged_NTE
        gate_NTE: Tensor = self.gate(query_NTD).sigmoid()
        return merged_NTE * gate_NTE.repeat_interleave(merged_NTE.shape[-1] // gate_NTE.shape[-1], dim=-1)

    def leave(self, output_NTD: Tensor, query_NTD: Tensor) -> Tensor:
        left_NTD: Tensor = self.post_norm(output_NTD + query_NTD if self.residual else output_NTD)
        return left_NTD
