"""What the public calls things: the names of constructor and call arguments, by role."""

from __future__ import annotations

import re

CONSTRUCTOR: dict[str, tuple[str, ...]] = {
    "width": (
        "d_model", "embed_dim", "dim", "hidden_size", "d_in", "width", "n_embd", "emb_dim", "embed_size",
        "model_dim", "hidden_dim", "input_dim", "in_features", "in_dim", "embedding_dim", "emb_size",
        "embedding_size", "emb", "features", "channels", "num_hiddens", "dim_in", "model_size", "d_embed",
        "n_embed", "embd_dim", "d_hidden", "dim_model", "query_dim", "q_dim", "query_size", "input_size", "n_state",
        "n_units", "units", "dmodel", "size", "hidden", "d", "n_dim", "in_channels", "feature_dim", "state_dim",
        "model_width", "nx", "n_features", "D", "k", "c", "e", "E", "hid_dim", "latent_dim", "n_feat", "c_a", "c_z",
        "c_in", "c_q", "c_m", "c_s", "num_hidden", "num_features", "n_hidden", "dims", "d_input",
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
        "qk_dim", "d_kv", "c_hidden", "kv_channels", "head_width", "head_channels", "size_per_head", "depth_per_head",
    ),
    "value_width": ("d_v", "dv", "dim_v", "value_dim"),
    "out_width": ("d_out", "out_dim", "output_dim", "dim_out", "out_features", "output_size"),
    "memory_width": (
        "context_dim", "cross_attention_dim", "encoder_dim", "memory_dim", "d_memory", "d_context", "kv_dim",
        "cross_dim", "d_encoder", "d_cross", "key_size", "value_size", "cond_dim", "context_width", "dim_visual",
        "dim_context", "media_dim", "enc_dim", "kdim", "vdim", "k_dim", "v_dim", "text_dim", "image_dim", "visual_dim",
        "encoder_hidden_size", "encoder_width", "kv_size", "kv_hidden_size", "cross_hidden_size", "encoder_embed_dim",
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
    "eps": (
        "eps", "norm_eps", "layer_norm_eps", "rms_norm_eps", "epsilon", "layer_norm_epsilon", "layernorm_eps",
        "layernorm_epsilon", "qk_norm_eps",
    ),
    "base": ("rope_theta", "rope_base", "rotary_base", "theta", "base", "rotary_emb_base"),
    "fraction": ("rotary_pct", "rotary_percentage", "partial_rotary_factor", "rope_pct", "rotary_percent"),
    "count": (
        "num_layers", "n_layers", "n_layer", "depth", "num_hidden_layers", "layers", "num_blocks", "n_blocks",
    ),
    "vocabulary": ("vocab_size", "n_vocab", "num_tokens", "ntoken", "vocabulary_size", "padded_vocab_size", "vocab"),
    "hidden": ("d_ff", "ffn_dim", "intermediate_size", "mlp_dim", "dim_feedforward", "ff_dim", "d_inner"),
    "window": ("sliding_window", "window", "window_size", "local_window", "attention_window"),
}  # fmt: skip

QUERY = (
    "x", "q", "query", "queries", "input", "inputs", "hidden_states", "src", "tgt", "inp", "tokens", "emb",
    "embeddings", "hidden", "decoder_input", "inputs_q", "query_states", "target", "xs", "feats", "features", "seq",
    "sequence", "x_q", "q_input", "dec", "decoder_hidden", "latents", "qry", "query_input", "h", "states", "Q", "X",
    "queries_in", "decoder_states", "xq", "input_q",
)  # fmt: skip
KEY = ("k", "key", "keys", "inputs_k", "key_states", "k_input", "K", "key_input", "x_k", "key_", "xk", "input_k")
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
    "memories", "conditioning", "keys_values", "enc_states", "media", "visual", "image", "img", "visual_features",
    "text", "audio", "support", "context_states", "cross_states", "kv_states", "memory_states", "src_memory",
)  # fmt: skip

LENGTHS = (
    "valid_lens", "valid_len", "lengths", "lens", "seq_lens", "seq_lengths", "key_lengths", "x_lens", "kv_lens",
    "src_lengths", "memory_lengths", "valid_lengths", "input_lengths", "kv_lengths", "x_lengths", "length",
)  # fmt: skip
# Arguments of a call that are neither tokens nor masks, and have to be given where they have no default.
EXTRA = {
    "tables": ("position_embeddings", "rotary_pos_emb", "rope", "rotary_emb", "rope_cache", "cos_sin", "rotary"),
    "cos": ("cos", "rope_cos", "rotary_cos", "cos_cached", "freqs_cos"),
    "sin": ("sin", "rope_sin", "rotary_sin", "sin_cached", "freqs_sin"),
    "complex": ("freqs_cis", "freqs_complex", "rope_cis", "cis", "pos_cis", "f_cis"),
    "angles": ("freqs", "angles", "rope_freqs", "rotary_freqs", "pos_freqs"),
    "positions": ("position_ids", "positions", "pos_ids", "input_pos", "cache_position", "token_positions"),
    "start": ("start_pos", "offset", "pos_offset", "cache_offset", "start"),
    "residual": ("residual",),
    "alibi": ("alibi", "alibi_bias"),
    "nothing": (
        "past_key_values", "past_key_value", "layer_past", "cache", "kv_cache", "head_mask", "layer_head_mask",
        "past_kv", "layer_cache", "cache_k", "cache_v", "incremental_state",
    ),
    "no": ("use_cache", "is_causal", "causal", "use_causal_mask", "training", "is_decoder", "output_hidden_states"),
    "yes": ("deterministic",),
}  # fmt: skip


def extra_role(name: str) -> str | None:
    """What an argument that is neither tokens nor a mask is to be given."""
    return next((role for role, names in EXTRA.items() if name.lower() in names), None)


# What a name that is not in the lists speaks for; asked only where a value has to be found.
SPEAKS = {
    "kv_heads": r"kv.*head|head.*kv|group",
    "head_width": r"(dim|size|width|channels).*per_head|head_?(dim|size|width|channels|feat)|dim_?head",
    "heads": r"head",
    "dropout": r"drop",
    "length": r"(max|block|ctx|seq|context|sequence).*(len|pos|size|tokens|steps)|n_?(steps|positions|tokens)",
    "out_width": r"(out|output|target)_?(dim|size|width|channels|feat)|(dim|size|width|channels)_?out",
    "memory_width": r"(context|mem|cross|enc|cond|media|source|src|kv|text|image|vis)\w*_?(dim|size|width|channels)",
    "eps": r"eps",
    "bias": r"bias",
    "causal": r"causal|autoreg",
    "window": r"window",
    "width": r"dim|size|width|channel|feat|hidden|embed|emb|units|^[cdn]_",
}


def role_of(name: str) -> str | None:
    """The role of a constructor argument, by its exact name and then without case."""
    for role, names in CONSTRUCTOR.items():
        if name in names:
            return role
    lower = name.lower()
    return next((role for role, names in CONSTRUCTOR.items() if lower in names and len(lower) > 1), None)


def likely_role(name: str) -> str | None:
    """The role of an argument that must be given, by what its name speaks for where it is not a known one."""
    return role_of(name) or next((role for role, words in SPEAKS.items() if re.search(words, name.lower())), None)


def call_role(name: str) -> str | None:
    """query, key, value, memory, mask, padding or weights (a flag that asks for them)."""
    lower = name.lower()
    asks = lower.startswith(("need", "return", "output_att", "with_att", "get_att", "output_w", "want"))
    if asks and any(part in lower for part in ("weight", "att", "score", "probs")):
        return "weights"
    if "average" in lower:
        return None
    if "mask" in lower.replace("head_mask", "") or lower in (
        "allowed",
        "blocked",
        "keep",
        "bias",
        "attn_bias",
        "attention_bias",
    ):
        per_token = "pad" in lower or lower in ("token_mask", "key_mask", "value_mask", "node_mask")
        return "padding" if per_token else "mask"
    if lower in LENGTHS:
        return "lengths"
    if "padding" in lower or lower in ("pad", "is_pad", "pads"):
        return "padding"
    for role, names in (("query", QUERY), ("key", KEY), ("value", VALUE), ("memory", MEMORY)):
        if name in names or lower in names:
            return role
    return None
