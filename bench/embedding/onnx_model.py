"""Builds an ONNX graph of a BERT sentence encoder from a sentence-transformers folder, node by node.

The same computation as an export gives, mean pooling and normalisation included: input_ids and attention_mask, both int64 [batch, tokens], to
`vector` [batch, hidden]. No exporter is used, so that the comparison needs no PyTorch.
"""

import json
import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file


class Graph:
    def __init__(self):
        self.nodes, self.constants, self.names = [], [], 0

    def constant(self, value, dtype=np.float32):
        self.names += 1
        name = f"constant{self.names}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), name))
        return name

    def integers(self, value):
        return self.constant(value, np.int64)

    def add(self, kind, *inputs, **attributes):
        self.names += 1
        name = f"{kind.lower()}{self.names}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name


def build(folder, path):
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    size, epsilon = hidden // heads, config["layer_norm_eps"]
    g = Graph()

    def linear(x, name):
        product = g.add("MatMul", x, g.constant(weights[f"{name}.weight"].T.copy()))
        return g.add("Add", product, g.constant(weights[f"{name}.bias"]))

    def norm(x, name):
        gain, bias = g.constant(weights[f"{name}.weight"]), g.constant(weights[f"{name}.bias"])
        return g.add("LayerNormalization", x, gain, bias, axis=-1, epsilon=epsilon)

    words = g.add("Gather", g.constant(weights["embeddings.word_embeddings.weight"]), "input_ids")
    tokens = g.add("Shape", "input_ids", start=1, end=2)
    places = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    places = g.add("Slice", g.constant(places), g.integers([0]), tokens, g.integers([0]))
    x = norm(g.add("Add", words, places), "embeddings.LayerNorm")

    mask = g.add("Cast", "attention_mask", to=TensorProto.FLOAT)
    hide = g.add("Mul", g.add("Sub", g.constant(1.0), mask), g.constant(-1e9))
    hide = g.add("Unsqueeze", hide, g.integers([1, 2]))
    split = g.integers([0, 0, heads, size])
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."

        def part(name, order):
            values = g.add("Reshape", linear(x, f"{at}attention.self.{name}"), split)
            return g.add("Transpose", values, perm=order)

        q, k, v = part("query", [0, 2, 1, 3]), part("key", [0, 2, 3, 1]), part("value", [0, 2, 1, 3])
        scores = g.add("Mul", g.add("MatMul", q, k), g.constant(1 / math.sqrt(size)))
        shares = g.add("Softmax", g.add("Add", scores, hide), axis=-1)
        context = g.add("Transpose", g.add("MatMul", shares, v), perm=[0, 2, 1, 3])
        context = g.add("Reshape", context, g.integers([0, 0, hidden]))
        x = norm(g.add("Add", linear(context, f"{at}attention.output.dense"), x), f"{at}attention.output.LayerNorm")
        inner = g.add("Gelu", linear(x, f"{at}intermediate.dense"))
        x = norm(g.add("Add", linear(inner, f"{at}output.dense"), x), f"{at}output.LayerNorm")

    weight = g.add("Unsqueeze", mask, g.integers([2]))
    total = g.add("ReduceSum", g.add("Mul", x, weight), g.integers([1]), keepdims=0)
    length = g.add("ReduceL2", total, g.integers([1]), keepdims=1)
    g.nodes.append(helper.make_node("Div", [total, length], ["vector"]))

    shape = ["batch", "tokens"]
    graph = helper.make_graph(
        g.nodes,
        "sentence encoder",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["batch", hidden])],
        g.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
