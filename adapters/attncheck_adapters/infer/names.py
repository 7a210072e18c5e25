"""What the public calls things: the names of constructor and call arguments, by role."""

from __future__ import annotations

CONSTRUCTOR: dict[str, tuple[str, ...]] = {
    "width": (
        "d_model", "embed_dim", "dim", "hidden_size", "d_in", "width", "n_embd", "emb_dim", "embed_size",
        "model_dim", "hidden_dim", "input_dim", "in_features", "in_dim", "embedding_dim", "emb_size",
        "embedding_size", "emb", "features", "channels", "num_hiddens", "dim_in", "model_size", "d_embed",
        "n_embed", "embd_dim", "d_hidden", "dim_model", "query_dim", "q_dim", "query_size", "input_size", "n_state",
        "n_units", "units", "dmodel", "size", "hidden", "d", "n_dim", "in_channels", "feature_dim", "state_dim",
        "model_width", "nx", "n_features", "D", "k", "c", "e", "E",
    ),
    "heads": (
        "num_heads", "n_heads", "heads", "nhead", "n_head", "num_attention_heads", "h", "num_head", "nheads",
        "head_count", "attention_heads", "n_attention_heads", "num_q_heads", "n_q_heads", "no_heads", "numheads",
        "H", "head_num", "n_query_heads", "query_heads", "num_query_heads",
    ),
    "kv_heads": (
        "num_kv_heads", "n_kv_heads", "kv_heads", "num_key_value_heads", "n_kv_head", "n_kv", "num_kv_groups",
        "num_groups", "n_groups", "num_query_groups", "n_query_groups", "g",
    ),
    "head_width": (
        "head_dim", "d_head", "dim_head", "d_k", "head_size", "key_dim", "dk", "dim_k", "attn_dim", "d_kq",
        "qk_dim", "d_kv",
    ),
    "value_width": ("d_v", "dv", "dim_v", "value_dim"),
    "out_width": ("d_out", "out_dim", "output_dim", "dim_out", "out_features", "output_size"),
    "memory_width": (
        "context_dim", "cross_attention_dim", "encoder_dim", "memory_dim", "d_memory", "d_context", "kv_dim",
        "cross_dim", "d_encoder", "d_cross", "key_size", "value_size", "cond_dim", "context_width",
    ),
    "dropout": (
        "dropout", "p", "dropout_p", "attn_dropout", "p_dropout", "dropout_rate", "attn_pdrop", "drop", "attn_drop",
        "proj_drop", "attention_dropout", "resid_pdrop", "attention_probs_dropout_prob", "hidden_dropout_prob",
        "dropout_prob", "drop_rate", "resid_dropout", "proj_dropout", "attn_p", "pdrop", "residual_dropout",
    ),
    "length": (
        "context_length", "block_size", "max_len", "max_seq_len", "n_ctx", "seq_len", "max_length",
        "max_seq_length", "ctx_len", "context_size", "max_position_embeddings", "max_context", "n_positions",
        "max_positions", "sequence_length", "T", "seq_length", "window_length", "context_len",
    ),
    "bias": ("bias", "qkv_bias", "use_bias", "attn_bias", "proj_bias", "out_bias"),
    "causal": ("causal", "is_causal", "masked", "use_causal_mask", "autoregressive"),
    "layer": ("layer_idx", "layer_id", "block_idx", "layer_number"),
    "device": ("device", "dtype", "factory_kwargs"),
}  # fmt: skip

QUERY = (
    "x", "q", "query", "queries", "input", "inputs", "hidden_states", "src", "tgt", "inp", "tokens", "emb",
    "embeddings", "hidden", "decoder_input", "inputs_q", "query_states", "target", "xs", "feats", "features", "seq",
    "sequence", "x_q", "q_input", "dec", "decoder_hidden", "latents", "qry", "query_input", "h", "states", "Q", "X",
    "queries_in", "decoder_states", "xq", "input_q",
)  # fmt: skip
KEY = ("k", "key", "keys", "inputs_k", "key_states", "k_input", "K", "key_input", "x_k", "xk", "input_k")
VALUE = (
    "v",
    "value",
    "values",
    "inputs_v",
    "value_states",
    "v_input",
    "V",
    "value_input",
    "x_v",
    "xv",
    "input_v",
    "vals",
)
MEMORY = (
    "memory", "mem", "context", "ctx", "encoder_output", "encoder_outputs", "enc_output", "enc_out",
    "encoder_hidden_states", "kv", "y", "enc", "cond", "source", "cross", "key_value_states", "x_kv", "kv_input",
    "key_value", "encoder_states", "encoder_out", "inputs_kv", "other", "z", "enc_outputs", "encoder_hidden",
    "memories", "conditioning", "keys_values", "enc_states",
)  # fmt: skip


def role_of(name: str) -> str | None:
    """The role of a constructor argument, by its exact name and then without case."""
    for role, names in CONSTRUCTOR.items():
        if name in names:
            return role
    lower = name.lower()
    return next((role for role, names in CONSTRUCTOR.items() if lower in names and len(lower) > 1), None)


def call_role(name: str) -> str | None:
    """query, key, value, memory, mask, padding or weights (a flag that asks for them)."""
    lower = name.lower()
    asks = lower.startswith(("need", "return", "output_att", "with_att", "get_att", "output_w", "want"))
    if asks and any(part in lower for part in ("weight", "att", "score", "probs")):
        return "weights"
    if "average" in lower:
        return None
    if "mask" in lower or lower in ("allowed", "blocked", "keep"):
        return "padding" if "pad" in lower else "mask"
    for role, names in (("query", QUERY), ("key", KEY), ("value", VALUE), ("memory", MEMORY)):
        if name in names or lower in names:
            return role
    return None
