"""Makes io/tokenizer-llama2.json, a small SentencePiece BPE with byte fallback as in Llama 2, and io/tokens-llama2.json, texts
with its tokens in Hugging Face's library. The same version of tokenizers gives the same bytes.

python3 make_sentence_piece.py [LICENSE]    LICENSE: the text of the Apache License 2.0, by default Debian's
"""
import json
import os
import random
import sys

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, trainers

MARK = "\u2581"  # stands for a space
BYTES = [f"<0x{value:02X}>" for value in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>"]
TEXTS = ["", " ", "  ", "Hello, world!", " leading", "trailing ", "  two  spaces\t\ttabs \n\n lines\r\n", "a\n b\n\n\nc   ",
         "Größe, naïve café — “quoted” …", "日本語 😀👩\u200d👩\u200d👧", "\x00\x01\x7f", MARK, f"{MARK}a {MARK}", "<s>a", "a</s>b",
         "<image>", " <image> \nwords", "<pad>", "a <pad> b<pad>",
         "USER: <image>\nWhat is this? ASSISTANT: A license.</s>USER: Why? ASSISTANT: So.</s>", "<0x41><0x0A>",
         "Terms and Conditions for use, reproduction, and distribution of the License"]
LETTERS = list("abcxyz'’ \n\r\t\u00a0.,!?-_()[]{}<>|0123456789éßñ日本語😀\u0301\u200d½Ⅷ٣ſ\x00") + [
    MARK, MARK * 2, "<s>", "</s>", "<unk>", "<image>", "<pad>", " <pad>", "<0x41>", "USER:", "ASSISTANT:"]


def trained(text):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", MARK)  # a line is one word
    tokenizer.train_from_iterator(
        text.splitlines(), trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL + BYTES, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    return Tokenizer.from_str(json.dumps({"version": "1.0", "model": model}))


def as_llama2(tokenizer):
    """Returns the tokenizer.json of a trained tokenizer in the form of Llama 2's."""
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in SPECIAL + ["<image>"]])
    tokenizer.add_tokens(["<pad>"])  # found in normalized texts
    file = json.loads(tokenizer.to_str())
    file["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}
    file["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    file["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return file


def with_metaspace(file, scheme, splits):
    """Returns the newer form of the file, in which a pre-tokenizer marks spaces."""
    return {**file, "normalizer": None, "pre_tokenizer": {
        "type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": splits}}


def loaded(file):
    return Tokenizer.from_str(json.dumps(file))


def encoded(file, texts):
    """Returns the tokens of each text, and the tokens in newer forms where they differ."""
    usual = loaded(file)
    forms = {"first": loaded(with_metaspace(file, "first", False)),
             "always split": loaded(with_metaspace(file, "always", True)),
             "never": loaded(with_metaspace(file, "never", False))}
    rows = []
    for text in texts:
        row = {"text": text, "ids": usual.encode(text, add_special_tokens=False).ids}
        for name, tokenizer in forms.items():
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            if ids != row["ids"]:
                row[name] = ids
        rows.append(row)
    return rows


def random_texts(draw, text):
    words = text.split()
    pieces = LETTERS + ["  " + words[draw.randrange(len(words))] for _ in LETTERS]
    for _ in range(120):
        count = draw.randrange(1, 30)
        yield "".join(pieces[draw.randrange(len(pieces))] if draw.random() < 0.6 else
                      " " * draw.randrange(2) + words[draw.randrange(len(words))] for _ in range(count))


def random_ids(draw):
    """Returns ids of which most are bytes: whole characters, parts of them and wrong ones."""
    character = [3 + byte for byte in "é日😀".encode()]
    ids = [character[draw.randrange(len(character))] if draw.random() < 0.6 else draw.randrange(3, 700)
           for _ in range(draw.randrange(9))]
    return ids + [3 + byte for byte in "日".encode()] if draw.random() < 0.3 else ids


def main():
    license_text = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/common-licenses/Apache-2.0"
    with open(license_text, encoding="utf-8") as file:
        text = file.read()
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "io")
    file = as_llama2(trained(text))
    with open(os.path.join(folder, "tokenizer-llama2.json"), "w", encoding="utf-8") as out:
        json.dump(file, out, ensure_ascii=False, separators=(",", ":"))
    draw = random.Random(1)
    texts = TEXTS + [text[begin:begin + 40] for begin in range(0, len(text), 997)] + list(random_texts(draw, text))
    usual = loaded(file)
    decoded = [{"ids": ids, "text": usual.decode(ids, skip_special_tokens=False)}
               for ids in (random_ids(draw) for _ in range(60))]
    with open(os.path.join(folder, "tokens-llama2.json"), "w", encoding="utf-8") as out:
        json.dump({"tokenizers": tokenizers.__version__, "encoded": encoded(file, texts), "decoded": decoded}, out,
                  separators=(",", ":"))


if __name__ == "__main__":
    main()
