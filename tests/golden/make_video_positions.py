"""Prints the expected positions of tests/traces/dataset/video_positions_test.cpp.

Run it with transformers 5.24, torch and torchvision: python3 tests/golden/make_video_positions.py
"""
import importlib
import json
import pathlib

import numpy as np
import tokenizers
import torch
from transformers import AutoConfig
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.video_utils import VideoMetadata

GOLDEN = pathlib.Path(__file__).parent
TOKENIZER = tokenizers.Tokenizer.from_file(str(GOLDEN / "io" / "tokenizer-qwen2.json"))
FAMILIES = {
    "qwen2-vl": "qwen2_vl.Qwen2VLModel",
    "qwen2.5-vl": "qwen2_5_vl.Qwen2_5_VLModel",
    "qwen3-vl": "qwen3_vl.Qwen3VLModel",
    "qwen2.5-omni-thinker": "qwen2_5_omni.Qwen2_5OmniThinkerForConditionalGeneration",
}
# Frames, height, width, and the rate under its key. qwen-vl-utils samples 24 frames of the first video
# (smart_nframes), and takes all of the second one.
VIDEOS = [(30, 48, 64, 2.4, "fps"), (5, 100, 90, 3, "sample_fps")]
PICTURE = (60, 90)  # height, width


def frames_of(frames, height, width):
    return torch.zeros(frames, 3, height, width, dtype=torch.uint8)


def outline(name):
    config = json.loads((GOLDEN / "models" / name / "config.json").read_text())
    is_omni, is_qwen3 = "omni" in name, name == "qwen3-vl"
    patch, merge = 16 if is_qwen3 else config["vision_config"]["patch_size"], 2
    side = patch * merge
    folder, kind = FAMILIES[name].split(".")
    made = AutoConfig.for_model(config["model_type"])
    with torch.device("meta"):
        model = getattr(importlib.import_module(f"transformers.models.{folder}.modeling_{folder}"), kind)(
            type(made).from_dict(config)
        )
    key = "_index" if is_omni else "_id"
    image, video = config["image_token" + key], config["video_token" + key]
    start, end, text = config["vision_start_token_id"], config["vision_end_token_id"], 9
    limits = {"size": {"shortest_edge": 65536, "longest_edge": 16777216}} if is_qwen3 else {}
    pictures = Qwen2VLImageProcessor(patch_size=patch, merge_size=merge, **limits)
    picture = np.zeros((*PICTURE, 3), dtype=np.uint8)
    image_grid = pictures(images=[picture], return_tensors="pt")["image_grid_thw"]
    grids, seconds, pieces = [], [], []
    for frames, height, width, fps, key in VIDEOS:
        all_frames = frames_of(frames, height, width)
        if is_qwen3:
            videos = Qwen3VLVideoProcessor(patch_size=patch, merge_size=merge)
            data = VideoMetadata(total_num_frames=frames, fps=fps, frames_indices=list(range(frames)))
            made = videos(
                videos=[all_frames], video_metadata=[data], return_metadata=True, return_tensors="pt"
            )
            times = Qwen3VLProcessor._calculate_timestamps(None, made["video_metadata"][0].frames_indices, fps)
            words = [len(TOKENIZER.encode(f"<{time:.1f} seconds>").ids) for time in times]
        else:
            taken = 24 if key == "fps" else frames
            videos = Qwen2VLVideoProcessor(
                patch_size=patch,
                merge_size=merge,
                size={"shortest_edge": 128 * side * side, "longest_edge": 768 * side * side},
                cap_pixels_per_frame=True,
            )
            made = videos(videos=[all_frames[:taken]], do_sample_frames=False, return_tensors="pt")
            rate = 2 if is_omni and key == "fps" else taken / frames * fps
            seconds.append(videos.temporal_patch_size / rate)
            words = [0]
        grids.append(made["video_grid_thw"][0])
        pieces.append(words)
    ids, kinds = [], []

    def add(token, kind, count=1):
        ids.extend([token] * count)
        kinds.extend([kind] * count)

    def add_video(number):
        grid = grids[number]
        slots = int(grid[0]) if is_qwen3 else 1
        add(start, 0, int(is_qwen3))  # the template's, around all slots
        for slot in range(slots):
            add(text, 0, pieces[number][slot])
            add(start, 0)
            add(video, 2, int(grid.prod()) // merge**2 // slots)
            add(end, 0)
        add(end, 0, int(is_qwen3))

    add(text, 0)  # "a<video>b<image>c<video>d", and the answer
    add_video(0)
    add(text, 0)
    add(start, 0)
    add(image, 1, int(image_grid[0].prod()) // merge**2)
    add(end, 0)
    add(text, 0)
    add_video(1)
    add(text, 0, 2)
    given = {"image_grid_thw": image_grid, "video_grid_thw": torch.stack(grids)}
    if is_omni:
        given["second_per_grids"] = torch.tensor(seconds)
    else:
        given["mm_token_type_ids"] = torch.tensor([kinds])
    if name == "qwen2.5-vl":
        given["second_per_grid_ts"] = torch.tensor(seconds)
    positions = model.get_rope_index(torch.tensor([ids]), **given)[0][:, 0].T.tolist()
    # A run of text is its first and last position, and a slot of a picture or video its first and last token's
    # positions in time, height and width.
    slots = [int(grid[1] * grid[2]) // merge**2 for grid in (grids[0], image_grid[0], grids[1]) for _ in range(grid[0])]
    shown, at = [], 0
    while at < len(ids):
        end = at + slots.pop(0) if kinds[at] else at + 1
        while kinds[at] == 0 and end < len(ids) and kinds[end] == 0:
            end += 1
        first, last = positions[at], positions[end - 1]
        shown.append(f"{first[0]}-{last[0]}" if kinds[at] == 0 else "[" + ", ".join(f"{a}-{b}" for a, b in zip(first, last)) + "]")
        at = end
    return " ".join(shown)


for name in FAMILIES:
    print(name, outline(name), sep="\n")
