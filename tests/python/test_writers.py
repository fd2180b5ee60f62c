"""Writers of files reject what the commands would not read."""

import json

import pytest

import dflop


def refused(call, *arguments, **options):
    with pytest.raises(dflop.InputError) as error:
        call(*arguments, **options)
    return str(error.value)


GOOD = dflop.make_sample(30, [16, 16], 8, "x")


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((5, [4], 9), "output_tokens: expected at most llm_tokens = 5, which include them, found 9"),
        ((5, [], 2), "output_tokens: expected 0, because there are no encoder sequences, found 2"),
        ((2**40,), "llm_tokens: expected a whole number from 0 to 1073741824, found 1099511627776"),
        ((5, [10**6 + 1]), "encoder_tokens: expected a whole number from 1 to 1000000, found 1000001"),
        ((5, [10**6] * 1001), "encoder_tokens: expected at most 1000000000 tokens in all, found 1001000000"),
    ],
)
def test_invalid_samples_are_not_made(arguments, said):
    assert refused(dflop.make_sample, *arguments) == said


@pytest.mark.parametrize(
    "samples, said",
    [
        ("abc", "samples: sample 0: expected a sample as dflop.make_sample() returns it, found 'a'"),
        ([GOOD, {}], "samples: sample 1: id: expected this key, as dflop.make_sample() makes it, found []"),
        ([], "samples: expected at least one, found none"),
        ([{**GOOD, "more": 1}], "found 'more'"),
        ([{**GOOD, "id": 3}], "samples: sample 0: id: expected a text, found 3"),
        ([{**GOOD, "modality": "smell"}], "modality: expected one of text, image, multi_image, video, audio, found 'sm"),
        ([{**GOOD, "modality": "text"}], "encoder_sequences: expected none in a sample of modality text"),
        ([{**GOOD, "encoder_sequences": [[1, 16]]}], "encoder_sequences: expected lists of [count, tokens, attention"),
        ([{**GOOD, "encoder_sequences": [[1, 16, 257]]}], "attention pairs: expected a whole number from 0 to 256"),
        ([{**GOOD, "encoder_sequences": [[0, 16, 256]]}], "equal length: expected a whole number from 1 to 1000000"),
        ([{**GOOD, "encoder_output_tokens": 31}], "encoder_output_tokens: expected at most llm_tokens = 30, which"),
        ([{**GOOD, "llm_tokens": 10**7 + 1}], "llm_tokens: expected a whole number from 0 to 10000000"),
        ([{**GOOD, "encoder_sequences": [[21, 10**6, 10**12]]}], "expected at most 2e13 attention pairs, found 2.1e+13"),
    ],
)
def test_invalid_samples_are_not_written(samples, said, tmp_path):
    path = tmp_path / "samples.json"
    assert said in refused(dflop.write_samples, path, samples)
    assert list(tmp_path.iterdir()) == []
    # A command rejects a file with these samples.
    if samples != "abc":
        path.write_text(json.dumps({"schema": "dflop.samples", "version": 1, "samples": samples}))
        with pytest.raises(dflop.CommandError, match="samples"):
            dflop.run("data", data=path, model="tiny-vlm")


def test_the_largest_samples_are_written_and_read(tmp_path):
    largest = [dflop.make_sample(10**7, [10**6] * 20, 10**6), dflop.make_sample(0), dflop.make_sample(1, [1] * 10**6, 1)]
    dflop.write_samples(tmp_path / "samples.json", largest)
    assert dflop.run("data", data=tmp_path / "samples.json", model="tiny-vlm")


CLUSTER = {"ranks": 2, "memory_bytes": 4 << 30}


@pytest.mark.parametrize(
    "options, said",
    [
        ({"bandwidth_bytes_per_s": float("nan")}, "expected a number from 1e+06 to 1e+15, found nan"),
        ({"bandwidth_bytes_per_s": float("inf")}, "expected a number from 1e+06 to 1e+15, found inf"),
        ({"latency_s": float("nan")}, "latency_s: expected a number from 0 to 1, found nan"),
        ({"latency_s": "0.1"}, "latency_s: expected a number from 0 to 1, found '0.1'"),
        ({"ranks": 0}, "ranks: expected a whole number from 1 to 1024, found 0"),
        ({"memory_bytes": 10**30}, f"memory_bytes: expected a whole number from 1 to {10**15}, found {10**30}"),
        ({"memory_bytes": 4.5}, "memory_bytes: expected a whole number"),
    ],
)
def test_invalid_clusters_are_not_written(options, said, tmp_path):
    assert said in refused(dflop.write_cluster, tmp_path / "cluster.json", **{**CLUSTER, **options})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "limits",
    [
        {"ranks": 1024, "memory_bytes": 1e15, "bandwidth_bytes_per_s": 1e15, "latency_s": 1},
        {"ranks": 1, "bandwidth_bytes_per_s": 1e6, "latency_s": 0},
    ],
)
def test_clusters_at_the_limits_are_read(limits, tmp_path):
    path, samples = tmp_path / "cluster.json", tmp_path / "samples.json"
    dflop.write_cluster(path, **{**CLUSTER, **limits})
    path.write_text(json.dumps({**json.loads(path.read_text()), "placeholder": False}))
    sound = {**GOOD, "encoder_sequences": GOOD["encoder_sequences"] + [[1, 16, 256, 2]]}
    dflop.write_samples(samples, [GOOD] * 3 + [sound])
    assert json.loads(samples.read_text())["samples"][3]["encoder_sequences"][-1] == [1, 16, 256, 2]
    dflop.write_samples(samples, [GOOD] * 4)
    dflop.plan(model="tiny-vlm", cluster=path, data=samples, gbs=4, tp=1, pp=1, dp=1, layout="uniform")
