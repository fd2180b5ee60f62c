#!/usr/bin/env python3
"""Makes data sets with shapes close to the published evaluation's out of the bundled records.

    python3 traces/datasets/paper_mixes.py        # from the root; writes the files below, always the same

paper_mix.csv    35 % single images, 32 % several images, 32 % videos of 2 to 30 s
paper_audio.csv  audio of 30 s

A video of 2 to 30 s is a part of a recorded one: its length is drawn, and frames and words scale with it. The same
holds for a 30 s clip of a recorded call. Draws are hashes of a record's id, so one row does not affect the others.
"""

import csv
import hashlib

FOLDER = "traces/datasets/"
ROWS = 8000
PARTS = {"image": 0.35, "multi_image": 0.325, "video": 0.325}
SHORTEST_S, LONGEST_S = 2.0, 30.0
ASSUMED_FPS = 30  # for records that give only frames, as with --assume-video
CLIP_S, CLIPS = 30.0, 4000


def draw(row, what):
    """Returns a number in [0, 1) that depends only on the row and on its purpose."""
    digest = hashlib.sha256(f"{what}:{row['id']}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def read(name):
    with open(FOLDER + name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(name, rows):
    with open(FOLDER + name, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def repeated(rows, count, what):
    """Returns `count` rows in the order of their draws, starting over if there are too few."""
    ordered = sorted(rows, key=lambda row: draw(row, what))
    return [dict(ordered[i % len(ordered)], id=f"{ordered[i % len(ordered)]['id']}#{i // len(ordered)}")
            for i in range(count)]


def scaled_words(row, part):
    """Scales the words of an answer by the part of a recording that is kept."""
    row["answer_tokens"] = max(1, round(int(row["answer_tokens"]) * part)) if int(row["answer_tokens"]) else 0
    row["prompt_tokens"] = int(row["prompt_tokens"])
    row["text_tokens"] = row["prompt_tokens"] + row["answer_tokens"]


def short_video(row):
    fps = float(row["video_fps"] or ASSUMED_FPS)
    whole = float(row["video_s"]) if row["video_s"] else int(row["video_frames"]) / fps
    length = min(whole, SHORTEST_S + (LONGEST_S - SHORTEST_S) * draw(row, "length"))
    row["video_s"] = f"{length:.2f}"
    row["video_fps"] = f"{fps:g}"
    row["video_frames"] = max(1, round(length * fps))
    return row


def paper_mix():
    rows = read("vision_mix.csv")
    chosen = []
    for modality, part in PARTS.items():
        kind = repeated([row for row in rows if row["modality"] == modality], round(ROWS * part), "row")
        chosen += [short_video(row) for row in kind] if modality == "video" else kind
    return sorted(chosen, key=lambda row: draw(row, "order"))


def paper_audio():
    calls = [row for row in read("omni_mix.csv") if row["source"] == "earnings21_22"]
    clips = repeated(calls, CLIPS, "row")
    for clip in clips:
        scaled_words(clip, CLIP_S / float(clip["audio_s"]))
        clip["audio_s"] = f"{CLIP_S:g}"
    return sorted(clips, key=lambda row: draw(row, "order"))


if __name__ == "__main__":
    write("paper_mix.csv", paper_mix())
    write("paper_audio.csv", paper_audio())
