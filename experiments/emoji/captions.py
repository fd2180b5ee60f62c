"""Emoji pictures become WebDataset tars: a picture each, and as its caption the Unicode name of its character."""

import io
import json
import os
import re
import tarfile
import unicodedata
import zlib
from typing import NamedTuple

QUESTION = "<image>\nWhat is this?"
FIRST_SYMBOL = 0x2000  # digits and letters before it are white on white without their transparency
HELD_OUT_EVERY = 20  # one picture in so many is kept for evaluation


class Picture(NamedTuple):
    key: str  # code point, "1f600"
    caption: str  # "grinning face"
    path: str


def captioned(folder):
    """Returns the pictures of a folder whose files are those of noto-emoji, as emoji_u1f600.png, of single symbols
    that Python's Unicode has a name for, well mixed and always in the same order. Sequences of several characters have
    no such name."""
    pictures = []
    for file in sorted(os.listdir(folder)):
        match = re.fullmatch(r"emoji_u([0-9a-f]+)\.png", file)
        code = int(match[1], 16) if match else 0
        name = unicodedata.name(chr(code), None)
        if code >= FIRST_SYMBOL and name:
            pictures.append(Picture(match[1], name.lower(), os.path.join(folder, file)))
    return sorted(pictures, key=lambda picture: zlib.crc32(picture.key.encode()))


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
