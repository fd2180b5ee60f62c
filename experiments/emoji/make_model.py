"""Writes traces/emoji/model: a small Qwen2.5-VL and a byte-level BPE tokenizer for the words of the captions.

    pip install tokenizers
    python3 experiments/emoji/make_model.py PICTURES

The folder is committed; this script made it. PICTURES is png/72 of noto-emoji.
"""

import json
import os
import sys

from captions import captioned
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../traces/emoji/model")
WORDS = 768  # size of the vocabulary, including bytes
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
# The regular expression with which Qwen2 splits words.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def make_tokenizer(captions):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, use_regex=False)
    frame = "system\nYou are a helpful assistant.\nuser\nWhat is this?\nassistant\n"
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(captions + [frame] * 20, trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    return tokenizer


def config(tokenizer):
    head = 32
    text = {
        "model_type": "qwen2_5_vl_text",
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]},
        "use_sliding_window": False,
        "vocab_size": -(-tokenizer.get_vocab_size() // 64) * 64,  # rounded up so that tp can split it
    }
    vision = {
        "model_type": "qwen2_5_vl_vision",
        "depth": 4,
        "fullatt_block_indexes": [1, 3],
        "hidden_act": "silu",
        "hidden_size": 4 * head,
        "intermediate_size": 384,
        "num_heads": 4,
        "out_hidden_size": text["hidden_size"],
        "in_channels": 3,
        "patch_size": 12,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "tokens_per_second": 2,
        "window_size": 48,
    }
    ids = {
        "image_token_id": tokenizer.token_to_id("<|image_pad|>"),
        "video_token_id": tokenizer.token_to_id("<|video_pad|>"),
        "vision_start_token_id": tokenizer.token_to_id("<|vision_start|>"),
        "vision_end_token_id": tokenizer.token_to_id("<|vision_end|>"),
    }
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "dtype": "float32",
        "tie_word_embeddings": True,
        "text_config": text,
        "vision_config": vision,
        **ids,
    }


PREPROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "do_convert_rgb": True,
    "do_resize": True,
    "resample": 3,
    "size": {"shortest_edge": 48 * 48, "longest_edge": 72 * 72},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "patch_size": 12,
    "temporal_patch_size": 2,
    "merge_size": 2,
}


def write(name, value):
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


def main():
    tokenizer = make_tokenizer([picture.caption for picture in captioned(sys.argv[1])])
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, "tokenizer.json"), "w", encoding="utf-8") as file:
        file.write(tokenizer.to_str(pretty=False) + "\n")
    write("config.json", config(tokenizer))
    write("preprocessor_config.json", PREPROCESSOR)


if __name__ == "__main__":
    main()
