"""The models of the head-to-head: their configurations for transformers, their tensors, and the FLOP of a sample."""

from typing import NamedTuple

# The vocabulary of the conversations: a token for each byte, followed by these tokens.
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
ID_OF = {token: 256 + i for i, token in enumerate(SPECIAL)}

TEXT = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "dtype": "bfloat16",
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": True,
    "use_cache": False,
    "vocab_size": 128256,
}

VLM = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "dtype": "bfloat16",
    "tie_word_embeddings": True,
    "text_config": {
        "model_type": "qwen2_5_vl_text",
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "max_position_embeddings": 128000,
        "num_attention_heads": 16,
        "num_hidden_layers": 12,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        "sliding_window": None,
        "tie_word_embeddings": True,
        "use_cache": False,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "vision_config": {
        "model_type": "qwen2_5_vl_vision",
        "depth": 32,
        "fullatt_block_indexes": [7, 15, 23, 31],
        "hidden_act": "silu",
        "hidden_size": 1280,
        "in_channels": 3,
        "intermediate_size": 3420,
        "num_heads": 16,
        "out_hidden_size": 2048,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "tokens_per_second": 2,
        "window_size": 112,
    },
    "image_token_id": ID_OF["<|image_pad|>"],
    "video_token_id": ID_OF["<|video_pad|>"],
    "vision_start_token_id": ID_OF["<|vision_start|>"],
    "vision_end_token_id": ID_OF["<|vision_end|>"],
}


def changed(config, text=None, vision=None, **values):
    """Returns a copy of a configuration with changed values, also in the parts of a VLM."""
    parts = {"text_config": text, "vision_config": vision}
    return {**config, **{k: {**config[k], **v} for k, v in parts.items() if v}, **values}


# Wide and shallow, so that no kernel is too small for a part of a GPU.
WIDE = changed(
    VLM,
    text={"num_hidden_layers": 4, "intermediate_size": 8192, "num_key_value_heads": 8, "vocab_size": 8192},
    vision={"depth": 4, "hidden_size": 2048, "intermediate_size": 8192, "fullatt_block_indexes": [3]},
)
MODELS = {"text": TEXT, "vlm": VLM, "wide": WIDE}

_small_vlm = changed(
    VLM,
    text={
        **{"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 320},
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]},
    },
    vision={
        **{"depth": 2, "fullatt_block_indexes": [1], "hidden_size": 32, "intermediate_size": 60, "num_heads": 2},
        "out_hidden_size": 64,
    },
)
# The same models in small, for machines without a GPU.
SMALL_MODELS = {
    "text": changed(
        TEXT,
        **{"head_dim": 16, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2},
        **{"num_key_value_heads": 2, "vocab_size": 512},
    ),
    "vlm": _small_vlm,
    "wide": _small_vlm,
}


class Sample(NamedTuple):
    """The amount of each kind of work in a sample."""

    tokens: int  # tokens in the LLM
    trained: int  # how many of these are trained
    grid: tuple = (0, 0)  # rows and columns of patches


def text_of(config):
    return config.get("text_config", config)


def layers_of(config):
    """Returns the numbers of layers of encoder and LLM."""
    return config.get("vision_config", {}).get("depth", 0), text_of(config)["num_hidden_layers"]


def head_dim_of(text):
    return text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]


def _llm_tensors(text, biases):
    hidden, ffn, head = text["hidden_size"], text["intermediate_size"], head_dim_of(text)
    queries, keys = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (text["vocab_size"], hidden)
    for layer in range(text["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            yield f"{at}self_attn.{name}_proj.weight", (rows, hidden)
            if biases:
                yield f"{at}self_attn.{name}_proj.bias", (rows,)
        yield at + "self_attn.o_proj.weight", (hidden, queries)
        yield at + "mlp.gate_proj.weight", (ffn, hidden)
        yield at + "mlp.up_proj.weight", (ffn, hidden)
        yield at + "mlp.down_proj.weight", (hidden, ffn)
        yield at + "input_layernorm.weight", (hidden,)
        yield at + "post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)


def _with_bias(name, rows, columns):
    yield name + ".weight", (rows, columns)
    yield name + ".bias", (rows,)


def _encoder_tensors(vision):
    hidden, ffn, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    merged = hidden * vision["spatial_merge_size"] ** 2
    yield "visual.patch_embed.proj.weight", (hidden, vision["in_channels"], vision["temporal_patch_size"], patch, patch)
    for block in range(vision["depth"]):
        at = f"visual.blocks.{block}."
        yield at + "norm1.weight", (hidden,)
        yield at + "norm2.weight", (hidden,)
        yield from _with_bias(at + "attn.qkv", 3 * hidden, hidden)
        yield from _with_bias(at + "attn.proj", hidden, hidden)
        yield from _with_bias(at + "mlp.gate_proj", ffn, hidden)
        yield from _with_bias(at + "mlp.up_proj", ffn, hidden)
        yield from _with_bias(at + "mlp.down_proj", hidden, ffn)
    yield "visual.merger.ln_q.weight", (hidden,)
    yield from _with_bias("visual.merger.mlp.0", merged, merged)
    yield from _with_bias("visual.merger.mlp.2", vision["out_hidden_size"], merged)


def tensors(config):
    """Yields the name and shape of each tensor, with the names of released folders. The head is tied to the
    embedding."""
    if "vision_config" in config:
        yield from _encoder_tensors(config["vision_config"])
    yield from _llm_tensors(text_of(config), biases="vision_config" in config)


def _window_pairs(rows, columns, side):
    """Returns the pairs of patches within windows of side x side."""
    heights = [min(side, rows - y) for y in range(0, rows, side)]
    widths = [min(side, columns - x) for x in range(0, columns, side)]
    return sum(h * h for h in heights) * sum(w * w for w in widths)


def _encoder_flop(vision, rows, columns):
    hidden, merge = vision["hidden_size"], vision["spatial_merge_size"] ** 2
    patches = rows * columns
    values = 3 * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    block = 4 * hidden * hidden + 3 * hidden * vision["intermediate_size"]
    merger = (merge * hidden) ** 2 + merge * hidden * vision["out_hidden_size"]
    whole = len(vision["fullatt_block_indexes"])
    windows = _window_pairs(rows, columns, vision["window_size"] // vision["patch_size"])
    # Patches need no gradient themselves, so there are two products instead of three.
    linear = 6 * vision["depth"] * block * patches + 4 * values * hidden * patches + 6 * merger * patches / merge
    return linear + 12 * hidden * (whole * patches**2 + (vision["depth"] - whole) * windows)


def flop(config, sample):
    """Returns the FLOP of a sample, forward and backward. A multiplication and an addition count as two, and each
    matrix has three products. Causal attention counts half its pairs, and the head only the trained tokens. Nothing is
    recomputed."""
    text = text_of(config)
    hidden, head = text["hidden_size"], head_dim_of(text)
    queries, keys = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    layer = hidden * (2 * queries + 2 * keys) + 3 * hidden * text["intermediate_size"]
    layers = text["num_hidden_layers"]
    total = 6 * layers * layer * sample.tokens + 6 * layers * queries * sample.tokens**2
    total += 6 * hidden * text["vocab_size"] * sample.trained
    return total + (_encoder_flop(config["vision_config"], *sample.grid) if "vision_config" in config else 0)
