"""Emoji pictures become WebDataset tars: a picture each, and as its caption the Unicode name of its character."""

import io
import json
import os
import re
import tarfile
import unicodedata
from typing import NamedTuple

QUESTION = "<image>\nWhat is this?"
HELD_OUT_EVERY = 20  # one picture in so many is kept for evaluation


class Picture(NamedTuple):
    key: str  # code point, "1f600"
    caption: str  # "grinning face"
    path: str


def captioned(folder):
    """Returns the pictures of a folder whose files are those of noto-emoji, as emoji_u1f600.png, of single characters
    that Python's Unicode has a name for; by code point. Sequences of several characters have no such name."""
    pictures = []
    for file in sorted(os.listdir(folder)):
        match = re.fullmatch(r"emoji_u([0-9a-f]+)\.png", file)
        name = unicodedata.name(chr(int(match[1], 16)), None) if match else None
        if name:
            pictures.append(Picture(match[1], name.lower(), os.path.join(folder, file)))
    return pictures


def split(pictures):
    """Returns what is trained and what is held out: every 20th picture, from the tenth on."""
    held_out = pictures[HELD_OUT_EVERY // 2 :: HELD_OUT_EVERY]
    return [picture for picture in pictures if picture not in held_out], held_out


def write_tar(pictures, path):
    """Writes a sample for each picture; the same bytes for the same pictures."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for picture in pictures:
            turns = [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": picture.caption}]
            with open(picture.path, "rb") as file:
                members = {"json": json.dumps({"conversations": turns}).encode(), "png": file.read()}
            for extension, data in members.items():
                info = tarfile.TarInfo(f"{picture.key}.{extension}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
