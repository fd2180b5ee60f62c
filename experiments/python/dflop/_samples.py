"""Samples are the shapes that a model sees of a data set."""

from __future__ import annotations

import json
import os
from typing import Any, Iterable

from dflop._partition import whole_number


def make_sample(
    llm_tokens: int, encoder_tokens: Iterable[int] = (), output_tokens: int = 0, name: str = ""
) -> dict[str, Any]:
    """Returns a sample as plans and schedules describe it.

    llm_tokens      all tokens of the LLM, those that come out of the encoder among them
    encoder_tokens  of each encoder sequence: a tile, a frame, a chunk of sound
    output_tokens   that come out of the encoder for the LLM

    Numbers may be those of numpy. Raises InputError for what is no number of tokens.
    """
    groups: list[list[int]] = []
    encoder_tokens = [whole_number("encoder_tokens", tokens, 1) for tokens in encoder_tokens]
    for tokens in encoder_tokens:
        if groups and groups[-1][1] == tokens:
            groups[-1][0] += 1
        else:
            groups.append([1, tokens, tokens * tokens])
    modality = ("text", "image", "multi_image")[min(len(encoder_tokens), 2)]
    return {
        "id": name,
        "modality": modality,
        "encoder_sequences": groups,
        "encoder_output_tokens": whole_number("output_tokens", output_tokens, 0),
        "llm_tokens": whole_number("llm_tokens", llm_tokens, 0),
    }


def write_samples(path: str | os.PathLike[str], samples: Iterable[dict[str, Any]]) -> None:
    """Writes samples, as make_sample() returns them, into a file that `dflop plan --data` and others take."""
    text = json.dumps({"schema": "dflop.samples", "version": 1, "samples": list(samples)})
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.part", path)
