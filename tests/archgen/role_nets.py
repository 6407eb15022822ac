"""Small networks whose inputs are of every kind, as text of ONNX's own syntax."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

_HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def net(text: str) -> onnx.ModelProto:
    """The model of a graph in text; what is declared without a value are random weights."""
    proto = parser.parse_model(_HEAD + text)
    made = np.random.default_rng(0)
    for value in proto.graph.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        weights = made.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(weights, value.name))
    del proto.graph.value_info[:]
    return proto


def saved(proto: onnx.ModelProto, folder: Path, name: str = "net") -> Path:
    """`proto` as a file in `folder`."""
    path = folder / f"{name}.onnx"
    onnx.save(proto, path)
    return path


STREAMING = """
stream (float[1, 4, 10] frame, float[2, 1, 4, 2] conv_cache)
  => (float[1, 4, 10] y, float[2, 1, 4, 2] conv_cache_out)
<float[4, 4, 3] w0, float[4, 4, 3] w1, int64[1] last = {-2}, int64[1] end = {1000000000},
 int64[1] time = {2}, int64[1] first = {0}, int64 zero = {0}, int64 one = {1}>
{
  c0 = Gather <axis = 0> (conv_cache, zero)
  c1 = Gather <axis = 0> (conv_cache, one)
  x0 = Concat <axis = 2> (c0, frame)
  h = Conv (x0, w0)
  x1 = Concat <axis = 2> (c1, h)
  y = Conv (x1, w1)
  n0 = Slice (x0, last, end, time)
  n1 = Slice (x1, last, end, time)
  u0 = Unsqueeze (n0, first)
  u1 = Unsqueeze (n1, first)
  conv_cache_out = Concat <axis = 0> (u0, u1)
}
"""
"""Two convolutions in time, whose last frames are the state of the next call."""

GRAPH_NET = """
graph_net (float[N, 4] x, int64[2, E] edge_index) => (float[N, 3] y)
<float[4, 3] w, int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}>
{
  source = Gather <axis = 0> (edge_index, zero)
  target = Gather <axis = 0> (edge_index, one)
  h = MatMul (x, w)
  messages = Gather <axis = 0> (h, source)
  at = Unsqueeze (target, last)
  y = ScatterND <reduction = "add"> (h, at, messages)
}
"""
"""Messages along the edges of a graph: nodes are no batch."""

SPEECH = """
speech (int64[batch, phonemes] input, int64[batch] input_lengths, float[3] scales)
  => (float[batch, phonemes, 4] y)
<float[50, 4] table, int64 zero = {0}, int64 one = {1}, int64[3] shape = {-1, 1, 1}>
{
  noise = Gather <axis = 0> (scales, zero)
  length = Gather <axis = 0> (scales, one)
  h = Gather <axis = 0> (table, input)
  a = Mul (h, noise)
  b = Div (a, length)
  l = Cast <to = 1> (input_lengths)
  r = Reshape (l, shape)
  y = Add (b, r)
}
"""
"""Phonemes of a batch, and three scales that hold for all of it."""

LEFT_OVER = """
left_over (float[1, 3, 8, 8] image, float[16] mean_0, float[4, 3, 3, 3] w_1)
  => (float[1, 4, 6, 6] y)
<float[4, 3, 3, 3] w>
{
  y = Conv (image, w)
}
"""
"""An exporter's left-overs: inputs that nothing reads."""

PICTURE = """
picture (float[height, width] image) => (float[1, 2, h, w] y)
<float[2, 1, 3, 3] w, int64[2] first = {0, 1}>
{
  x = Unsqueeze (image, first)
  y = Conv (x, w)
}
"""
"""One picture without a batch."""

DECODER = """
decoder (int64[batch, new] input_ids, int64[batch, all] attention_mask,
         int64[batch, new] position_ids, float[batch, 2, past, 4] past_key,
         float[batch, 2, past, 4] past_value)
  => (float[batch, new, 8] logits, float[batch, 2, all, 4] present_key,
      float[batch, 2, all, 4] present_value)
<float[20, 8] words, float[16, 8] places, float[8, 8] wq, float[8, 8] wk, float[8, 8] wv,
 int64[4] heads = {0, 0, 2, 4}, int64[3] joined = {0, 0, 8}, int64[2] rows = {1, 2},
 float one = {1.0}, float low = {-10000.0}>
{
  e = Gather (words, input_ids)
  p = Gather (places, position_ids)
  x = Add (e, p)
  q0 = MatMul (x, wq)
  k0 = MatMul (x, wk)
  v0 = MatMul (x, wv)
  q1 = Reshape (q0, heads)
  k1 = Reshape (k0, heads)
  v1 = Reshape (v0, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (q1)
  k2 = Transpose <perm = [0, 2, 1, 3]> (k1)
  v2 = Transpose <perm = [0, 2, 1, 3]> (v1)
  present_key = Concat <axis = 2> (past_key, k2)
  present_value = Concat <axis = 2> (past_value, v2)
  kt = Transpose <perm = [0, 1, 3, 2]> (present_key)
  s = MatMul (q, kt)
  m = Cast <to = 1> (attention_mask)
  n = Sub (one, m)
  hidden = Mul (n, low)
  wide = Unsqueeze (hidden, rows)
  t = Add (s, wide)
  f = Softmax <axis = -1> (t)
  o = MatMul (f, present_value)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  logits = Reshape (ot, joined)
}
"""
"""One layer of a decoder with its cache."""
