"""This project's encoder against ONNX Runtime in Python: the same texts, the same weights, one thread each.

Started by `run`, which sees to what it needs. Both sides are pinned to one core and take turns; each round gives a
ratio, and the median of the rounds is what counts. Tokenizing is part of the time on both sides. ONNX Runtime computes
in f32 with all graph optimisations on, and gets its texts in batches of like length, so that it pads little. Before
anything is measured, its vectors are compared with the fixture of this project's tests.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
CORE = max(os.sched_getaffinity(0))
os.sched_setaffinity(0, {CORE})

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

import onnx_model

LIMIT = 256
FIXTURE = Path(__file__).parents[2] / "crates/encoder/tests/fixtures/minilm.jsonl"


class Onnx:
    def __init__(self, folder, batch):
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "model.onnx"
            onnx_model.build(folder, path)
            options = ort.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
            self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self.tokenizer.enable_truncation(LIMIT)
        self.tokenizer.no_padding()
        self.batch = batch

    def embed(self, texts):
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
        vectors = [None] * len(ids)
        for start in range(0, len(order), self.batch):
            part = order[start : start + self.batch]
            longest = len(ids[part[-1]])
            tokens, mask = np.zeros((2, len(part), longest), dtype=np.int64)
            for row, index in enumerate(part):
                tokens[row, : len(ids[index])] = ids[index]
                mask[row, : len(ids[index])] = 1
            (found,) = self.session.run(["vector"], {"input_ids": tokens, "attention_mask": mask})
            for row, index in enumerate(part):
                vectors[index] = found[row]
        return np.array(vectors)

    def measure(self, texts, queries):
        self.embed(texts[:16])
        times = []
        for query in queries:
            start = time.perf_counter()
            self.embed([query])
            times.append(time.perf_counter() - start)
        start = time.perf_counter()
        self.embed(texts)
        return {"seconds": time.perf_counter() - start, "query_ms": statistics.median(times) * 1e3}


def check(onnx):
    lines = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]
    found = onnx.embed([line["text"] for line in lines])
    expected = np.array([line["vector"] for line in lines])
    cosines = (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    print(f"ONNX Runtime {ort.__version__} agrees with the fixture: lowest cosine {cosines.min():.8f} of {len(lines)}")
    if cosines.min() < 0.99999:
        sys.exit("the two do not compute the same: no comparison")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model", "texts", "queries", "throughput"):
        arguments.add_argument(f"--{name}", required=True)
    arguments.add_argument("--count", type=int, default=400, help="how many texts")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--batch", type=int, default=8, help="of ONNX Runtime")
    options = arguments.parse_args()

    def read(path):
        return [json.loads(line)["text"] for line in open(path, encoding="utf-8")]

    texts, queries = read(options.texts)[: options.count], read(options.queries)
    onnx = Onnx(options.model, options.batch)
    check(onnx)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as part:
        part.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        part.flush()
        command = [options.throughput, options.model, part.name, options.queries]
        rounds = []
        for number in range(options.rounds):
            sides = [
                ("ours", lambda: json.loads(subprocess.run(command, check=True, capture_output=True).stdout)),
                ("onnx", lambda: onnx.measure(texts, queries)),
            ]
            result = {name: run() for name, run in (sides if number % 2 == 0 else sides[::-1])}
            rounds.append(result)
            ours, theirs = (len(texts) / result[name]["seconds"] for name in ("ours", "onnx"))
            print(
                f"round {number + 1}: ours {ours:.1f} texts/s, {result['ours']['query_ms']:.2f} ms a query, opened in "
                f"{result['ours']['open_ms']:.1f} ms; ONNX Runtime {theirs:.1f} texts/s, "
                f"{result['onnx']['query_ms']:.2f} ms a query; load {os.getloadavg()[0]:.1f}"
            )
    for what, field in (("texts a second", "seconds"), ("latency of a query", "query_ms")):
        ratios = sorted(result["onnx"][field] / result["ours"][field] for result in rounds)
        print(
            f"{what}: ours is {statistics.median(ratios):.2f} times as fast as ONNX Runtime "
            f"(median of {len(ratios)} rounds, {ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


main()
