#!/usr/bin/env python3
"""Makes the inputs of all runs, with the same bytes on every machine: weights, token ids and pictures with
conversations.

    python3 data.py FOLDER [--models text,vlm,wide] [--small]

FOLDER/text, FOLDER/vlm, FOLDER/wide: models in the format of transformers, with random bf16 weights from one seed.
FOLDER/text.bin, .idx: token ids in the format of Megatron-LM. FOLDER/vlm.tar: a WebDataset of pictures and
conversations. FOLDER/samples.json: the sizes of each of these samples. It needs only Python.
"""

import argparse
import io
import json
import math
import os
import random
import shutil
import struct
import sys
import tarfile
import zlib
from array import array
from multiprocessing import Pool
from statistics import NormalDist
from typing import NamedTuple

import models
from models import ID_OF, Sample

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
TOKENIZER = os.path.join(TREE, "traces/emoji/model/tokenizer.json")
SEED = 7
SAMPLES = 256
DEVIATION = 0.02  # standard deviation of weights
CHUNK = 1 << 24  # values of a tensor that are drawn at a time
WORDS = "a the small red blue green picture of shows box line near below above large and with two three some left right".split()
BEFORE_PICTURE = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
AFTER_QUESTION = "<|im_end|>\n<|im_start|>assistant\n"


class Sizes(NamedTuple):
    """How much is made of each kind of data."""

    samples: int = SAMPLES
    length: int = 4096  # tokens of a text sample
    low: int = 256  # min pixels of a picture's side
    high: int = 1024


SMALL = Sizes(samples=16, length=32, low=56, high=140)


def in_parallel(function, tasks):
    """Returns the function's value for each task, with one process per core."""
    with Pool(min(len(tasks), len(os.sched_getaffinity(0)))) as pool:
        return pool.map(function, tasks, chunksize=1 + len(tasks) // 256)


# Weights


def bf16(value):
    """Returns the nearest bf16, as two bytes in file order."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.pack("<I", bits + 0x7FFF + (bits >> 16 & 1))[2:]


# The midpoints of 256 equally likely parts of a normal distribution: a random byte selects a weight.
NORMAL = [bf16(DEVIATION * NormalDist().inv_cdf((i + 0.5) / 256)) for i in range(256)]
LOW, HIGH = (bytes(value[i] for value in NORMAL) for i in (0, 1))


def weights_of(name, shape, chunk, count):
    """Returns bf16 values: ones for norms, zeros for biases, normally distributed numbers for the others."""
    if len(shape) == 1:
        return bf16(0.0 if name.endswith("bias") else 1.0) * count
    drawn = random.Random(f"{SEED} {name} {chunk}").randbytes(count)
    values = bytearray(2 * count)
    values[0::2] = drawn.translate(LOW)
    values[1::2] = drawn.translate(HIGH)
    return values


def write_chunk(task):
    path, offset, *what = task
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(weights_of(*what))


def write_weights(folder, config):
    """Writes model.safetensors."""
    header, end, tasks = {"__metadata__": {"format": "pt"}}, 0, []
    path = os.path.join(folder, "model.safetensors")
    for name, shape in models.tensors(config):
        size = math.prod(shape)
        for chunk, first in enumerate(range(0, size, CHUNK)):
            tasks.append((path, end + 2 * first, name, shape, chunk, min(CHUNK, size - first)))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + 2 * size]}
        end += 2 * size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    in_parallel(write_chunk, [(path, 8 + len(text) + offset, *what) for path, offset, *what in tasks])


# Token ids


def write_text(folder, vocabulary, sizes):
    """Writes a walk over token ids that a model can learn: each of 4,000 has a usual successor, taken nine times in
    ten."""
    rng = random.Random(SEED)
    used = rng.sample(range(vocabulary), min(4000, vocabulary // 2))
    follows = rng.sample(range(len(used)), len(used))
    at, tokens = 0, array("i")
    for _ in range(sizes.samples * sizes.length + 1):
        tokens.append(used[at])
        at = follows[at] if rng.random() < 0.9 else rng.randrange(len(used))
    with open(os.path.join(folder, "text.bin"), "wb") as file:
        tokens.tofile(file)
    with open(os.path.join(folder, "text.idx"), "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, 1, 2))  # version; int32; documents and their boundaries
        file.write(struct.pack("<iqqq", len(tokens), 0, 0, 1))


# Pictures and conversations


def tokenizer():
    """Returns a tokenizer.json whose token ids are bytes, followed by the special tokens: the tokenizer of the emoji
    run without its learned merges."""
    frame = read_json(TOKENIZER)
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # shown unchanged; all others from U+0100 on
    others = [byte for byte in range(256) if byte not in plain]
    symbols = {byte: chr(byte) for byte in plain} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}
    special = [{**frame["added_tokens"][0], "id": id, "content": token} for token, id in ID_OF.items()]
    model = {**frame["model"], "vocab": {symbols[byte]: byte for byte in range(256)}, "merges": []}
    return {**frame, "added_tokens": special, "model": model}


PREPROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "do_convert_rgb": True,
    "do_resize": True,
    "resample": 3,
    "size": {"shortest_edge": 56 * 56, "longest_edge": 14 * 14 * 4 * 16384},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
}


def ids_of(text):
    """Returns the token ids of a text that contains special tokens by name."""
    for token, id in ID_OF.items():
        before, found, after = text.partition(token)
        if found:
            return [*ids_of(before), id, *ids_of(after)]
    return list(text.encode())


def tokens_of(question, answer, pictures):
    """Returns the token ids of a conversation in Qwen2's format, and for each id whether it is trained."""
    before, after = question.split("<image>")
    parts = (
        (ids_of(BEFORE_PICTURE + before + "<|vision_start|>") + [ID_OF["<|image_pad|>"]] * pictures, False),
        (ids_of("<|vision_end|>" + after + AFTER_QUESTION), False),
        (ids_of(answer + "<|im_end|>"), True),
        (ids_of("\n"), False),
    )
    return [id for ids, _ in parts for id in ids], [trained for ids, trained in parts for _ in ids]


def grid_of(width, height):
    """Returns the rows and columns of a picture's patches. transformers resizes the picture to whole pairs of
    patches."""
    side = PREPROCESSOR["patch_size"] * PREPROCESSOR["merge_size"]
    return tuple(max(side, round(pixels / side) * side) // PREPROCESSOR["patch_size"] for pixels in (height, width))


NOISE = bytes(byte % 4 for byte in range(256))


def png(width, height, rng):
    """Returns a picture of 8 x 8 fields, each with its own color, with noise that makes decoding take time."""
    edges = [width * i // 8 for i in range(9)]
    rows = []
    for field in range(8):
        row = b"".join(bytes(rng.randrange(252) for _ in range(3)) * (b - a) for a, b in zip(edges, edges[1:]))
        rows.append((b"\0" + row) * (height * (field + 1) // 8 - height * field // 8))
    plain = b"".join(rows)
    noise = bytearray(rng.randbytes(len(plain)).translate(NOISE))
    noise[:: 1 + 3 * width] = bytes(height)  # the first byte of a row: the row is not stored as a difference
    pixels = (int.from_bytes(plain, "big") + int.from_bytes(noise, "big")).to_bytes(len(plain), "big")
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(pixels, 1), b"IEND")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


def make_picture(task):
    """Returns the files of a sample by extension, and its sizes."""
    index, sizes = task
    rng = random.Random(f"{SEED} picture {index}")

    def words(low, high):
        return " ".join(rng.choices(WORDS, k=rng.randint(low, high)))

    width, height = rng.randint(sizes.low, sizes.high), rng.randint(sizes.low, sizes.high)
    question, answer = f"<image>\nDoes this show {words(3, 12)}?", words(4, 32)
    turns = {"conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]}
    rows, columns = grid_of(width, height)
    _, trained = tokens_of(question, answer, rows * columns // 4)
    files = {".png": png(width, height, rng), ".json": json.dumps(turns).encode()}
    return files, Sample(len(trained), sum(trained), (rows, columns))


def write_pictures(folder, sizes):
    """Writes vlm.tar. Returns its samples by name."""
    samples = {}
    with tarfile.open(os.path.join(folder, "vlm.tar"), "w", format=tarfile.USTAR_FORMAT) as tar:
        for i, (files, sample) in enumerate(in_parallel(make_picture, [(i, sizes) for i in range(sizes.samples)])):
            samples[f"{i:06d}"] = sample
            for ending, data in files.items():
                member = tarfile.TarInfo(f"{i:06d}{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return samples


def folder_with_room():
    """Returns a folder in memory if models and data fit into it, or None for the default one."""
    memory = "/dev/shm"
    return memory if os.path.isdir(memory) and shutil.disk_usage(memory).free > 16e9 else None


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read_samples(folder):
    """Returns the samples of each kind, by name, and the tokens of a text sample."""
    made = read_json(os.path.join(folder, "samples.json"))
    samples = {kind: {name: Sample(*row) for name, row in rows.items()} for kind, rows in made["samples"].items()}
    return samples, made["length"]


def make(folder, wanted, small):
    """Writes the requested kinds of models and data to a folder."""
    sizes = SMALL if small else Sizes()
    os.makedirs(folder, exist_ok=True)
    samples = {}
    for kind in wanted:
        config = (models.SMALL_MODELS if small else models.MODELS)[kind]
        model = os.path.join(folder, kind)
        os.makedirs(model, exist_ok=True)
        write_json(os.path.join(model, "config.json"), config)
        write_weights(model, config)
        if kind == "text":
            write_text(folder, config["vocab_size"], sizes)
            whole = Sample(sizes.length, sizes.length)
            samples[kind] = {str(i): whole for i in range(sizes.samples)}
        else:
            write_json(os.path.join(model, "tokenizer.json"), tokenizer())
            write_json(os.path.join(model, "preprocessor_config.json"), PREPROCESSOR)
            samples["vlm"] = samples.get("vlm") or write_pictures(folder, sizes)
    write_json(os.path.join(folder, "samples.json"), {"length": sizes.length, "samples": samples})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--models", default="text,vlm", metavar="LIST", help="of text, vlm, wide")
    parser.add_argument("--small", action="store_true", help="small models and few small samples")
    options = parser.parse_args()
    wanted = options.models.split(",")
    if unknown := set(wanted) - set(models.MODELS):
        sys.exit(f"data.py: expected models of {', '.join(models.MODELS)}, found {', '.join(sorted(unknown))}")
    make(options.folder, wanted, options.small)


if __name__ == "__main__":
    main()
