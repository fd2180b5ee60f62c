"""The samples of each step as tensors, for the peer. It reads and decodes the batches of dflop's schedule by itself."""

import io
import json
import os
import tarfile

import data
import models
import numpy as np
import torch
from torch.utils.data import Dataset

IGNORED = -100  # the label of tokens that are not trained


class TextSteps(Dataset):
    """Microbatches of token ids that all have the same length."""

    def __init__(self, folder, iterations):
        samples, length = data.read_samples(folder)
        tokens = np.fromfile(os.path.join(folder, "text.bin"), np.int32).astype(np.int64)
        self.inputs = torch.from_numpy(tokens[:-1].reshape(-1, length))
        self.targets = torch.from_numpy(tokens[1:].reshape(-1, length))
        self.iterations = iterations
        self.index_of = {name: i for i, name in enumerate(samples["text"])}

    def __len__(self):
        return len(self.iterations)

    def __getitem__(self, step):
        rows = [[self.index_of[name] for name in group] for group in self.iterations[step]]
        return [
            {"input_ids": self.inputs[group], "labels": self.inputs[group], "shift_labels": self.targets[group]} for group in rows
        ]


class PictureSteps(Dataset):
    """Microbatches of pictures with conversations, either packed to one sequence or padded."""

    def __init__(self, folder, iterations, packed, dtype):
        self.tar = os.path.join(folder, "vlm.tar")
        self.samples = data.read_samples(folder)[0]["vlm"]
        self.iterations, self.packed, self.dtype = iterations, packed, dtype
        self.pre = data.PREPROCESSOR
        with tarfile.open(self.tar) as tar:
            self.places = {member.name: (member.offset_data, member.size) for member in tar}

    def __len__(self):
        return len(self.iterations)

    def __getitem__(self, step):
        groups = self.iterations[step]
        if not self.packed:  # similar lengths in a microbatch need the least padding
            names = sorted((name for group in groups for name in group), key=lambda name: self.samples[name].tokens)
            size = -(-len(names) // len(groups))
            groups = [names[i : i + size] for i in range(0, len(names), size)]
        return [(pack if self.packed else pad)([self.read(name) for name in group]) for group in groups]

    def member(self, name):
        offset, size = self.places[name]
        with open(self.tar, "rb") as file:
            file.seek(offset)
            return file.read(size)

    def read(self, name):
        """Returns the token ids, labels, positions, patches and grid of a sample."""
        rows, columns = self.samples[name].grid
        question, answer = (turn["value"] for turn in json.loads(self.member(name + ".json"))["conversations"])
        ids, trained = data.tokens_of(question, answer, rows * columns // 4)
        labels = [id if is_trained else IGNORED for id, is_trained in zip(ids, trained)]
        return {
            "ids": torch.tensor(ids),
            "labels": torch.tensor(labels),
            "positions": positions_of(ids, rows // 2, columns // 2),
            "patches": torch.from_numpy(self.patches(self.member(name + ".png"), rows, columns)).to(self.dtype),
            "grid": torch.tensor([1, rows, columns]),
        }

    def patches(self, picture, rows, columns):
        """Returns the normalized values of each patch, in squares of 2 x 2 patches, in the layout of transformers."""
        from PIL import Image

        patch, merge, frames = self.pre["patch_size"], self.pre["merge_size"], self.pre["temporal_patch_size"]
        mean, deviation = (np.array(self.pre[key], np.float32) for key in ("image_mean", "image_std"))
        image = Image.open(io.BytesIO(picture)).convert("RGB").resize((columns * patch, rows * patch), Image.BICUBIC)
        values = ((np.asarray(image, np.float32) / 255 - mean) / deviation).transpose(2, 0, 1)
        shape = (1, frames, 3, rows // merge, merge, patch, columns // merge, merge, patch)
        values = np.broadcast_to(values, (frames, *values.shape)).reshape(shape)
        return np.ascontiguousarray(values.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)).reshape(rows * columns, -1)


def positions_of(ids, rows, columns):
    """Returns the positions of tokens for time, row and column (Qwen2-VL). The positions of a picture begin after the
    words before it, and the words after it begin after the longer side of the picture."""
    first = ids.index(models.ID_OF["<|image_pad|>"])
    last = first + rows * columns
    positions = torch.arange(len(ids)).repeat(3, 1)
    positions[0, first:last] = first
    positions[1, first:last] = first + torch.arange(rows).repeat_interleave(columns)
    positions[2, first:last] = first + torch.arange(columns).repeat(rows)
    positions[:, last:] += max(rows, columns) - rows * columns
    return positions


def pack(samples):
    """Returns one sequence without padding. limits: the boundaries of samples in it, and the length of the longest."""
    lengths = [len(sample["ids"]) for sample in samples]
    limits = torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32)
    # The first label of a sample is never trained, so that nothing is learned across boundaries.
    return {
        "input_ids": torch.cat([sample["ids"] for sample in samples])[None],
        "labels": torch.cat([sample["labels"] for sample in samples])[None],
        "position_ids": torch.cat([sample["positions"] for sample in samples], dim=1)[:, None],
        **pictures_of(samples),
        "limits": (limits, max(lengths)),
    }


def pad(samples):
    """Returns one row per sample, padded to the longest, with a mask if there are several."""
    longest = max(len(sample["ids"]) for sample in samples)

    def rows(key, value):
        fill = [torch.nn.functional.pad(sample[key], (0, longest - len(sample["ids"])), value=value) for sample in samples]
        return torch.stack(fill, dim=-2)

    padded = {"input_ids": rows("ids", 0), "labels": rows("labels", IGNORED), "position_ids": rows("positions", 0)}
    padded.update(pictures_of(samples))
    if len(samples) > 1:
        kept = [torch.arange(longest) < len(sample["ids"]) for sample in samples]
        padded["attention_mask"] = torch.stack(kept).long()
    return padded


def pictures_of(samples):
    return {
        "pixel_values": torch.cat([sample["patches"] for sample in samples]),
        "image_grid_thw": torch.stack([sample["grid"] for sample in samples]),
    }


def named_groups(schedule):
    """Returns the names of the samples of each microbatch of each step."""
    names = [sample["id"].rpartition("/")[2] for sample in schedule["samples"]]
    steps = []
    for iteration in schedule["iterations"]:
        groups = [[] for _ in range(iteration["microbatches"])]
        for sample, bin in zip(iteration["samples"], iteration["bins"]):
            groups[bin].append(names[sample])
        steps.append(groups)
    return steps


def steps_of(kind, folder, packed, dtype):
    """Returns the steps of FOLDER/<kind>-schedule.json, each a list of microbatches."""
    groups = named_groups(data.read_json(os.path.join(folder, kind + "-schedule.json")))
    return TextSteps(folder, groups) if kind == "text" else PictureSteps(folder, groups, packed, dtype)
