"""Samples describe a data set by the shapes that a model sees."""

from __future__ import annotations

import json
import operator
import os
from typing import Any, Iterable, Mapping

from dflop._errors import InputError
from dflop._partition import whole_number

# The limits of the reader of samples and of data sets of samples: traces/files/samples.cpp.
_MODALITIES = ("text", "image", "multi_image", "video", "audio")
_MOST_SEQUENCES = _MOST_SEQUENCE_TOKENS = 1_000_000
_MOST_ENCODER_TOKENS = 1_000_000_000
_MOST_LLM_TOKENS = 2**30
_MOST_DATA_TOKENS = 10_000_000
_MOST_DATA_PAIRS = 2e13


def make_sample(
    llm_tokens: int, encoder_tokens: Iterable[int] = (), output_tokens: int = 0, name: str = ""
) -> dict[str, Any]:
    """Returns a sample in the form used by plans and schedules.

    llm_tokens      all tokens of the LLM, including the output tokens of the encoder
    encoder_tokens  of each encoder sequence: a tile, a frame, or a chunk of audio
    output_tokens   number of tokens that the encoder produces for the LLM

    Numbers may come from numpy. Raises InputError for anything but a number of tokens, and for output tokens that the
    encoder cannot have produced, or that exceed the LLM's tokens.
    """
    groups: list[list[int]] = []
    encoder_tokens = [whole_number("encoder_tokens", tokens, 1, _MOST_SEQUENCE_TOKENS) for tokens in encoder_tokens]
    for tokens in encoder_tokens:
        if groups and groups[-1][1] == tokens:
            groups[-1][0] += 1
        else:
            groups.append([1, tokens, tokens * tokens])
    modality = ("text", "image", "multi_image")[min(len(encoder_tokens), 2)]
    sample = {
        "id": name,
        "modality": modality,
        "encoder_sequences": groups,
        "encoder_output_tokens": whole_number("output_tokens", output_tokens, 0, _MOST_SEQUENCE_TOKENS),
        "llm_tokens": whole_number("llm_tokens", llm_tokens, 0, _MOST_LLM_TOKENS),
    }
    _require_consistent(sample, "encoder_tokens", "output_tokens")
    return sample


def write_samples(path: str | os.PathLike[str], samples: Iterable[dict[str, Any]]) -> None:
    """Writes samples from make_sample() to a file that `dflop plan --data` and other commands accept.

    Raises InputError for samples that these commands would reject.
    """
    checked = [_read_data_sample(f"samples: sample {i}: ", sample) for i, sample in enumerate(samples)]
    if not checked:
        raise InputError("samples: expected at least one, found none")
    text = json.dumps({"schema": "dflop.samples", "version": 1, "samples": checked})
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.part", path)


def read_sample(where: str, sample: Any) -> dict[str, Any]:
    """Returns a sample with plain numbers. Raises InputError for samples that make_sample() does not return; `where`
    identifies the sample, and ends in ": "."""
    keys = ("id", "modality", "encoder_sequences", "encoder_output_tokens", "llm_tokens")
    if not isinstance(sample, Mapping):
        raise InputError(f"{where}expected a sample as dflop.make_sample() returns it, found {sample!r}")
    for key in keys:
        if key not in sample:
            raise InputError(f"{where}{key}: expected this key, as dflop.make_sample() makes it, found {list(sample)}")
    for key in sample:
        if key not in keys:
            raise InputError(f"{where}expected only keys {', '.join(keys)}, found {key!r}")
    if not isinstance(sample["id"], str):
        raise InputError(f"{where}id: expected a text, found {sample['id']!r}")
    if sample["modality"] not in _MODALITIES:
        raise InputError(f"{where}modality: expected one of {', '.join(_MODALITIES)}, found {sample['modality']!r}")
    read = {
        **sample,
        "encoder_sequences": _read_sequences(where + "encoder_sequences", sample["encoder_sequences"]),
        "encoder_output_tokens": whole_number(
            where + "encoder_output_tokens", sample["encoder_output_tokens"], 0, _MOST_SEQUENCE_TOKENS
        ),
        "llm_tokens": whole_number(where + "llm_tokens", sample["llm_tokens"], 0, _MOST_LLM_TOKENS),
    }
    _require_consistent(read, where + "encoder_sequences", where + "encoder_output_tokens")
    return read


def _read_sequences(where, groups):
    try:
        rows = [[operator.index(number) for number in group] for group in groups]
    except (TypeError, ValueError):
        rows = [[]]
    # A fourth number, 2, marks sequences of the model's second encoder.
    if any(len(row) != 3 and (len(row) != 4 or row[3] not in (1, 2)) for row in rows):
        raise InputError(
            f"{where}: expected lists of [count, tokens, attention pairs], and 2 at the end for a second encoder, "
            f"found {groups!r}"
        )
    for _, tokens, pairs, *_ in rows:
        whole_number(f"{where}: tokens", tokens, 1, _MOST_SEQUENCE_TOKENS)
        whole_number(f"{where}: attention pairs", pairs, 0, tokens * tokens)
    return rows


def _require_consistent(sample, sequences, output):
    """Rejects samples that no preprocessing produces; `sequences` and `output` name the possibly wrong values."""
    groups, llm, given = sample["encoder_sequences"], sample["llm_tokens"], sample["encoder_output_tokens"]
    for count, *_ in groups:
        whole_number(f"{sequences}: sequences of equal length", count, 1, _MOST_SEQUENCES)
    tokens = sum(count * tokens for count, tokens, *_ in groups)
    if tokens > _MOST_ENCODER_TOKENS:
        raise InputError(f"{sequences}: expected at most {_MOST_ENCODER_TOKENS} tokens in all, found {tokens}")
    if groups and sample["modality"] == "text":
        raise InputError(f"{sequences}: expected none in a sample of modality text, found {groups}")
    if given > 0 and not groups:
        raise InputError(f"{output}: expected 0, because there are no encoder sequences, found {given}")
    if given > llm:
        raise InputError(f"{output}: expected at most llm_tokens = {llm}, which include them, found {given}")


def _read_data_sample(where, sample):
    """Returns a sample that may be drawn into any batch."""
    read = read_sample(where, sample)
    whole_number(where + "llm_tokens", read["llm_tokens"], 0, _MOST_DATA_TOKENS)
    pairs = [0, 0]  # of each encoder
    for count, _, of_one, *encoder in read["encoder_sequences"]:
        pairs[encoder == [2]] += count * of_one
    pairs = max(pairs)
    if pairs > _MOST_DATA_PAIRS:
        raise InputError(f"{where}encoder_sequences: expected at most 2e13 attention pairs, found {pairs:g}")
    return read
