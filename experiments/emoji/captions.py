"""Writes emoji pictures to WebDataset tars. The caption of a picture is the Unicode name of its character."""

import io
import json
import os
import re
import tarfile
import unicodedata
import zlib
from typing import NamedTuple

QUESTION = "<image>\nWhat is this?"
FIRST_SYMBOL = 0x2000  # without their transparency, the digits and letters before it are white on white
HELD_OUT_EVERY = 20  # one in this many pictures is kept for evaluation


class Picture(NamedTuple):
    key: str  # code point, such as "1f600"
    caption: str  # such as "grinning face"
    path: str


def captioned(folder):
    """Returns the pictures of a folder with files named as in noto-emoji, such as emoji_u1f600.png. Only single symbols
    with a Unicode name in Python are included, because sequences of several characters have no such name. The pictures
    are well shuffled and always in the same order."""
    pictures = []
    for file in sorted(os.listdir(folder)):
        match = re.fullmatch(r"emoji_u([0-9a-f]+)\.png", file)
        code = int(match[1], 16) if match else 0
        name = unicodedata.name(chr(code), None)
        if code >= FIRST_SYMBOL and name:
            pictures.append(Picture(match[1], name.lower(), os.path.join(folder, file)))
    return sorted(pictures, key=lambda picture: zlib.crc32(picture.key.encode()))


def split(pictures):
    """Returns the training pictures and the held-out ones, which are every 20th picture, starting with the tenth."""
    held_out = pictures[HELD_OUT_EVERY // 2 :: HELD_OUT_EVERY]
    return [picture for picture in pictures if picture not in held_out], held_out


def write_tar(pictures, path):
    """Writes a sample for each picture. The same pictures give the same bytes."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for picture in pictures:
            turns = [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": picture.caption}]
            with open(picture.path, "rb") as file:
                members = {"json": json.dumps({"conversations": turns}).encode(), "png": file.read()}
            for extension, data in members.items():
                info = tarfile.TarInfo(f"{picture.key}.{extension}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
