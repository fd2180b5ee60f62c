"""Writes what `run.py --qwen3-vl` trains: the folder of a small Qwen3-VL, and lists of the pictures in tars."""

import json
import os
import shutil
import tarfile

PICTURES = "pictures"


def config(qwen2_5_vl):
    """Returns the config of a Qwen3-VL with the vocabulary and about the size of a small Qwen2.5-VL."""
    text, vision = qwen2_5_vl["text_config"], qwen2_5_vl["vision_config"]
    same_text = (
        "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads hidden_act rms_norm_eps "
        "max_position_embeddings vocab_size"
    )
    same_vision = (
        "depth hidden_size intermediate_size num_heads out_hidden_size in_channels patch_size spatial_merge_size "
        "temporal_patch_size"
    )
    same = "dtype tie_word_embeddings image_token_id video_token_id vision_start_token_id vision_end_token_id"
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "text_config": {
            "model_type": "qwen3_vl_text",
            **{key: text[key] for key in same_text.split()},
            "head_dim": text["hidden_size"] // text["num_attention_heads"],
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e6,
                "mrope_interleaved": True,
                "mrope_section": [6, 5, 5],
            },
        },
        "vision_config": {
            "model_type": "qwen3_vl_vision",
            **{key: vision[key] for key in same_vision.split()},
            "hidden_act": "gelu_pytorch_tanh",
            "deepstack_visual_indexes": [0, 2],
            "num_position_embeddings": 36,  # 6 x 6, as many as patches in a picture of 72 x 72 pixels
        },
        **{key: qwen2_5_vl[key] for key in same.split()},
    }


def write_model(qwen2_5_vl, out):
    """Writes a model folder with the tokenizer and picture settings of the folder of a small Qwen2.5-VL."""
    os.makedirs(out, exist_ok=True)
    for name in ("tokenizer.json", "preprocessor_config.json"):
        shutil.copyfile(os.path.join(qwen2_5_vl, name), os.path.join(out, name))
    with open(os.path.join(qwen2_5_vl, "config.json"), encoding="utf-8") as file:
        value = config(json.load(file))
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


def write_list(tar_file, path):
    """Writes the samples of a tar as a JSON list, and their pictures to a folder next to the list."""
    folder = os.path.join(os.path.dirname(path), PICTURES)
    os.makedirs(folder, exist_ok=True)
    lines = []
    with tarfile.open(tar_file) as tar:
        for member in tar.getmembers():
            key, extension = os.path.splitext(member.name)
            data = tar.extractfile(member).read()
            if extension == ".png":
                with open(os.path.join(folder, member.name), "wb") as file:
                    file.write(data)
            else:
                lines.append(json.dumps({"image": f"{PICTURES}/{key}.png", **json.loads(data)}) + "\n")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines)
