"""Small networks with the operators and habits of exported ones, as ONNX text.

The inputs of a network are those named in `INPUTS`; every other parameter is a constant with
random values, divided by the square root of what a product sums over.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

INPUTS = ("x", "past_k", "past_v")

TEXTS = {
    # A face detector: depthwise blocks, two levels joined by a Resize to a shape computed at run
    # time, heads that are transposed, reshaped and concatenated.
    "detector": """<ir_version: 9, opset_import: ["": 17]>
    detector (float[1,3,48,64] x, float[16,3,3,3] w1, float[16] b1, float[16,1,3,3] d1,
              float[32,16,1,1] p1, float[32,1,3,3] d2, float[32,32,1,1] p2, float[32,32,1,1] lat,
              float[2,32,1,1] h1, float[2,32,1,1] h2, float[8,32,1,1] r1, float[8,32,1,1] r2)
        => (float[1,480,1] score, float[1,480,4] box)
    {
        a = Conv <strides=[2,2], pads=[1,1,1,1]> (x, w1, b1)
        a1 = Relu(a)
        c = Conv <group=16, pads=[1,1,1,1]> (a1, d1)
        c1 = Conv(c, p1)
        c2 = Relu(c1)
        c3 = MaxPool <kernel_shape=[2,2], strides=[2,2]> (c2)
        e = Conv <group=32, pads=[1,1,1,1], strides=[2,2]> (c3, d2)
        e1 = Conv(e, p2)
        low = Relu(e1)
        l = Conv(c3, lat)
        shape = Shape(l)
        s2 = Constant <value_ints=[2]> ()
        s4 = Constant <value_ints=[4]> ()
        s0 = Constant <value_ints=[0]> ()
        size = Slice(shape, s2, s4, s0)
        lows = Shape(low)
        front = Slice(lows, s0, s2, s0)
        whole = Concat <axis=0> (front, size)
        up = Resize <mode="nearest", coordinate_transformation_mode="asymmetric",
                     nearest_mode="floor"> (low, , , whole)
        high = Add(l, up)
        k1 = Conv(high, h1)
        k2 = Conv(low, h2)
        q1 = Conv(high, r1)
        q2 = Conv(low, r2)
        t1 = Transpose <perm=[0,2,3,1]> (k1)
        t2 = Transpose <perm=[0,2,3,1]> (k2)
        u1 = Transpose <perm=[0,2,3,1]> (q1)
        u2 = Transpose <perm=[0,2,3,1]> (q2)
        one = Constant <value_ints=[1,-1,1]> ()
        four = Constant <value_ints=[1,-1,4]> ()
        f1 = Reshape(t1, one)
        f2 = Reshape(t2, one)
        g1 = Reshape(u1, four)
        g2 = Reshape(u2, four)
        f = Concat <axis=1> (f1, f2)
        box = Concat <axis=1> (g1, g2)
        score = Sigmoid(f)
    }""",
    # A mobile classifier of documents: HardSwish written out, squeeze and excite, Softmax.
    "gated": """<ir_version: 9, opset_import: ["": 14]>
    gated (float[1,3,32,48] x, float[16,3,3,3] w1, float[16] s1, float[16] o1, float[16] m1,
           float[16] v1, float[4,16,1,1] q, float[4] qb, float[16,4,1,1] e, float[16] eb,
           float[24,16,1,1] w2, float[24,10] w3, float[10] b3) => (float[1,10] y)
    {
        a = Conv <strides=[2,2], pads=[1,1,1,1]> (x, w1)
        v = Mul(v1, v1)
        a1 = BatchNormalization(a, s1, o1, m1, v)
        three = Constant <value_float=3.0> ()
        none = Constant <value_float=0.0> ()
        six = Constant <value_float=6.0> ()
        a2 = Add(a1, three)
        a3 = Clip(a2, none, six)
        a4 = Mul(a1, a3)
        a5 = Div(a4, six)
        g = GlobalAveragePool(a5)
        g1 = Conv(g, q, qb)
        g2 = Relu(g1)
        g3 = Conv(g2, e, eb)
        g4 = HardSigmoid <alpha=0.2, beta=0.5> (g3)
        h = Mul(a5, g4)
        h1 = Conv(h, w2)
        h2 = HardSwish(h1)
        p = GlobalAveragePool(h2)
        flat = Constant <value_ints=[0,-1]> ()
        f = Reshape(p, flat)
        z = MatMul(f, w3)
        z1 = Add(z, b3)
        y = Softmax <axis=1> (z1)
    }""",
    # A detector of text: Gelu by Erf, a linear and a nearest Resize, transposed convolutions.
    "segmenter": """<ir_version: 9, opset_import: ["": 17]>
    segmenter (float[1,3,32,32] x, float[8,3,3,3] w1, float[16,8,3,3] w2, float[8,16,1,1] w3,
               float[16,8,2,2] t1, float[8,1,2,2] t2) => (float[1,1,64,64] y)
    {
        a = Conv <strides=[2,2], pads=[1,1,1,1]> (x, w1)
        root = Constant <value_float=1.4142135> ()
        one = Constant <value_float=1.0> ()
        half = Constant <value_float=0.5> ()
        r = Div(a, root)
        r1 = Erf(r)
        r2 = Add(r1, one)
        r3 = Mul(a, r2)
        g = Mul(r3, half)
        b = Conv <strides=[2,2], pads=[1,1,1,1]> (g, w2)
        b1 = Relu(b)
        c = Conv(b1, w3)
        scales = Constant <value_floats=[1.0, 1.0, 2.0, 2.0]> ()
        up = Resize <mode="linear", coordinate_transformation_mode="half_pixel"> (c, , scales)
        near = Resize <mode="nearest"> (c, , scales)
        sum = Add(up, near)
        all = Concat <axis=1> (sum, g)
        d = ConvTranspose <strides=[2,2]> (all, t1)
        d1 = Relu(d)
        d2 = ConvTranspose <strides=[2,2]> (d1, t2)
        y = Sigmoid(d2)
    }""",
    # Keyword spotting: LSTM in both directions, a GRU, the last state, a classifier.
    "recurrent": """<ir_version: 9, opset_import: ["": 17]>
    recurrent (float[1,12,10] x, float[2,32,10] w, float[2,32,8] r, float[2,64] b,
               float[1,24,16] w2, float[1,24,8] r2, float[1,48] b2, float[6,8] w3, float[6] b3)
        => (float[1,6] y)
    {
        t = Transpose <perm=[1,0,2]> (x)
        h, hn, cn = LSTM <hidden_size=8, direction="bidirectional"> (t, w, r, b)
        h1 = Transpose <perm=[0,2,1,3]> (h)
        joined = Constant <value_ints=[0,0,-1]> ()
        h2 = Reshape(h1, joined)
        g, gn = GRU <hidden_size=8, linear_before_reset=1> (h2, w2, r2, b2)
        first = Constant <value_ints=[0]> ()
        z = Squeeze(gn, first)
        y = Gemm <transB=1> (z, w3, b3)
    }""",
    # A step of a decoder: rotary positions, keys and values joined with those before, groups of
    # heads, a mask by Where, a product of gated branches.
    "decoder": """<ir_version: 9, opset_import: ["": 17]>
    decoder (float[1,1,32] x, float[1,2,7,8] past_k, float[1,2,7,8] past_v, float[32] n,
             float[32,32] wq, float[32,16] wk, float[32,16] wv, float[32,32] wo,
             float[1,1,1,8] cosine, float[1,1,1,8] sine, float[32,48] up, float[32,48] gate,
             float[48,32] down)
        => (float[1,1,32] y, float[1,2,8,8] k_all, float[1,2,8,8] v_all)
    {
        two = Constant <value_float=2.0> ()
        p = Pow(x, two)
        p1 = ReduceMean <axes=[-1], keepdims=1> (p)
        tiny = Constant <value_float=0.00001> ()
        p2 = Add(p1, tiny)
        p3 = Sqrt(p2)
        p4 = Reciprocal(p3)
        p5 = Mul(x, p4)
        a = Mul(p5, n)
        q = MatMul(a, wq)
        k = MatMul(a, wk)
        v = MatMul(a, wv)
        sq = Constant <value_ints=[1,1,4,8]> ()
        sk = Constant <value_ints=[1,1,2,8]> ()
        q1 = Reshape(q, sq)
        k1 = Reshape(k, sk)
        v1 = Reshape(v, sk)
        q2 = Transpose <perm=[0,2,1,3]> (q1)
        k2 = Transpose <perm=[0,2,1,3]> (k1)
        v2 = Transpose <perm=[0,2,1,3]> (v1)
        z = Constant <value_ints=[0]> ()
        h = Constant <value_ints=[4]> ()
        e = Constant <value_ints=[8]> ()
        ax = Constant <value_ints=[3]> ()
        qa = Slice(q2, z, h, ax)
        qb = Slice(q2, h, e, ax)
        qn = Neg(qb)
        qr = Concat <axis=3> (qn, qa)
        qc = Mul(q2, cosine)
        qs = Mul(qr, sine)
        q3 = Add(qc, qs)
        ka = Slice(k2, z, h, ax)
        kb = Slice(k2, h, e, ax)
        kn = Neg(kb)
        kr = Concat <axis=3> (kn, ka)
        kc = Mul(k2, cosine)
        ks = Mul(kr, sine)
        k3 = Add(kc, ks)
        k_all = Concat <axis=2> (past_k, k3)
        v_all = Concat <axis=2> (past_v, v2)
        new = Constant <value_ints=[2]> ()
        k4 = Unsqueeze(k_all, new)
        v4 = Unsqueeze(v_all, new)
        many = Constant <value_ints=[1,2,2,8,8]> ()
        k5 = Expand(k4, many)
        v5 = Expand(v4, many)
        heads = Constant <value_ints=[1,4,8,8]> ()
        k6 = Reshape(k5, heads)
        v6 = Reshape(v5, heads)
        k7 = Transpose <perm=[0,1,3,2]> (k6)
        s = MatMul(q3, k7)
        s2 = Softmax <axis=-1> (s)
        bad = IsNaN(s2)
        nought = Constant <value_float=0.0> ()
        s3 = Where(bad, nought, s2)
        m = MatMul(s3, v6)
        m1 = Transpose <perm=[0,2,1,3]> (m)
        flat = Constant <value_ints=[1,1,32]> ()
        m2 = Reshape(m1, flat)
        o = MatMul(m2, wo)
        r = Add(o, x)
        u = MatMul(r, up)
        g = MatMul(r, gate)
        g1 = Sigmoid(g)
        g2 = Mul(g, g1)
        d = Mul(u, g2)
        d1 = MatMul(d, down)
        y = Add(d1, r)
    }""",
    # What a file is, from its bytes: rows of a table, convolutions over positions, the largest.
    "bytes": """<ir_version: 9, opset_import: ["": 15]>
    bytes (int32[1,64] x, float[256,16] table, float[32,16,5] w, float[32] b, float[32] n,
           float[32,9] c) => (float[1,9] y)
    {
        i = Cast <to=7> (x)
        e = Gather(table, i)
        t = Transpose <perm=[0,2,1]> (e)
        a = Conv <strides=[2]> (t, w, b)
        a1 = Tanh(a)
        p = GlobalMaxPool(a1)
        last = Constant <value_ints=[2]> ()
        f = Squeeze(p, last)
        m = ReduceMean <axes=[1], keepdims=1> (f)
        d = Sub(f, m)
        d2 = Mul(d, d)
        s = ReduceMean <axes=[1], keepdims=1> (d2)
        tiny = Constant <value_float=0.001> ()
        s1 = Add(s, tiny)
        s2 = Sqrt(s1)
        s3 = Reciprocal(s2)
        z = Mul(d, s3)
        z1 = Mul(z, n)
        l = MatMul(z1, c)
        big = ReduceMax <axes=[1], keepdims=1> (l)
        q = Sub(l, big)
        q1 = Exp(q)
        one = Constant <value_ints=[1]> ()
        q2 = ReduceSum(q1, one)
        y = Div(q1, q2)
    }""",
    # Embeddings of sound from channels-last spectrograms, leaky by Max, five best of the scores.
    "ranked": """<ir_version: 9, opset_import: ["": 13]>
    ranked (float[1,20,16,1] x, float[12,1,3,3] w1, float[12] b1, float[24,12,3,1] w2,
            float[20,24] w3) => (float[1,5] values, int64[1,5] indices)
    {
        a = Transpose <perm=[0,3,1,2]> (x)
        c = Conv <pads=[0,1,0,1]> (a, w1, b1)
        c1 = LeakyRelu <alpha=0.2> (c)
        low = Constant <value_float=-0.4> ()
        c2 = Max(c1, low)
        c3 = MaxPool <kernel_shape=[2,2], strides=[2,2]> (c2)
        d = Conv(c3, w2)
        d1 = Relu(d)
        g = GlobalAveragePool(d1)
        f = Flatten(g)
        s = Gemm <transB=1> (f, w3)
        five = Constant <value_ints=[5]> ()
        values, indices = TopK <axis=1> (s, five)
    }""",
    # Quantized by operators: no float between the first and the last.
    "qoperators": """<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
    qoperators (float[1,3,24,24] x, int8[16,3,3,3] w1, int8[16,16,3,3] w2, int8[16,10] w3)
        => (float[1,10] y)
    {
        s = Constant <value_float=0.02> ()
        ws = Constant <value_float=0.005> ()
        u0 = Constant <value = uint8[1] {128}> ()
        i0 = Constant <value = int8[1] {0}> ()
        none = Constant <value_ints=[0]> ()
        u = Squeeze(u0, none)
        i = Squeeze(i0, none)
        a = QuantizeLinear(x, s, u)
        b = QLinearConv <pads=[1,1,1,1], strides=[2,2]> (a, s, u, w1, ws, i, s, u)
        c = QLinearConv <pads=[1,1,1,1]> (b, s, u, w2, ws, i, s, u)
        d = com.microsoft.QLinearAdd(b, s, u, c, s, u, s, u)
        e = com.microsoft.QLinearGlobalAveragePool(d, s, u, s, u)
        f = Flatten(e)
        g = QLinearMatMul(f, s, u, w3, ws, i, s, u)
        y = DequantizeLinear(g, s, u)
    }""",
    # Quantized beside the operators, weights with a scale for each channel; attention's Softmax and
    # a written-out LayerNormalization stay in float.
    "qdq": """<ir_version: 9, opset_import: ["": 17]>
    qdq (float[1,12,16] x, int8[16,16] wq, int8[16,16] wk, int8[16,16] wv, float[16] n)
        => (float[1,12,16] y)
    {
        s = Constant <value_float=0.03> ()
        z0 = Constant <value = int8[1] {3}> ()
        none = Constant <value_ints=[0]> ()
        z = Squeeze(z0, none)
        ws = Constant <value_float=0.004> ()
        i0 = Constant <value = int8[1] {0}> ()
        i = Squeeze(i0, none)
        a = QuantizeLinear(x, s, z)
        a1 = DequantizeLinear(a, s, z)
        wq1 = DequantizeLinear(wq, ws, i)
        wk1 = DequantizeLinear(wk, ws, i)
        wv1 = DequantizeLinear(wv, ws, i)
        q = MatMul(a1, wq1)
        k = MatMul(a1, wk1)
        v = MatMul(a1, wv1)
        q1 = QuantizeLinear(q, s, z)
        k1 = QuantizeLinear(k, s, z)
        v1 = QuantizeLinear(v, s, z)
        q2 = DequantizeLinear(q1, s, z)
        k2 = DequantizeLinear(k1, s, z)
        v2 = DequantizeLinear(v1, s, z)
        kt = Transpose <perm=[0,2,1]> (k2)
        c = MatMul(q2, kt)
        p = Softmax <axis=-1> (c)
        ps = Constant <value_float=0.00787> ()
        p1 = QuantizeLinear(p, ps, i)
        p2 = DequantizeLinear(p1, ps, i)
        m = MatMul(p2, v2)
        m1 = QuantizeLinear(m, s, z)
        m2 = DequantizeLinear(m1, s, z)
        r = Add(m2, a1)
        e = ReduceMean <axes=[-1], keepdims=1> (r)
        d = Sub(r, e)
        two = Constant <value_float=2.0> ()
        d2 = Pow(d, two)
        va = ReduceMean <axes=[-1], keepdims=1> (d2)
        tiny = Constant <value_float=0.001> ()
        v4 = Add(va, tiny)
        v5 = Sqrt(v4)
        d3 = Div(d, v5)
        y = Mul(d3, n)
    }""",
    # Weights and features in fp16.
    "half": """<ir_version: 9, opset_import: ["": 17]>
    half (float16[1,3,32,32] x, float16[16,3,3,3] w1, float16[16,1,3,3] w2, float16[16,16,1,1] w3,
          float16[10,16] w4, float16[10] b4) => (float16[1,10] y)
    {
        zero0 = Constant <value_float=0.0> ()
        six0 = Constant <value_float=6.0> ()
        zero = Cast <to=10> (zero0)
        six = Cast <to=10> (six0)
        a = Conv <strides=[2,2], pads=[1,1,1,1]> (x, w1)
        a1 = Clip(a, zero, six)
        b = Conv <group=16, pads=[1,1,1,1]> (a1, w2)
        b1 = Clip(b, zero, six)
        c = Conv(b1, w3)
        d = Add(c, a1)
        g = GlobalAveragePool(d)
        f = Flatten(g)
        y = Gemm <transB=1> (f, w4, b4)
    }""",
    # Letters from a line of text: features by position, the best letter of each.
    "letters": """<ir_version: 9, opset_import: ["": 13]>
    letters (float[1,1,16,64] x, float[16,1,3,3] w1, float[32,16,3,3] w2, float[32,30] w3,
             float[30] b3) => (int64[1,16] best, float[1,16] sure)
    {
        a = Conv <pads=[1,1,1,1]> (x, w1)
        a1 = Relu(a)
        a2 = MaxPool <kernel_shape=[2,2], strides=[2,2]> (a1)
        b = Conv <pads=[1,1,1,1]> (a2, w2)
        b1 = Relu(b)
        b2 = AveragePool <kernel_shape=[8,2], strides=[8,2]> (b1)
        two = Constant <value_ints=[2]> ()
        s = Squeeze(b2, two)
        t = Transpose <perm=[0,2,1]> (s)
        l = MatMul(t, w3)
        l1 = Add(l, b3)
        p = Softmax <axis=2> (l1)
        best = ArgMax <axis=2, keepdims=0> (p)
        sure = ReduceMax <axes=[2], keepdims=0> (p)
    }""",
}


def real_net(name: str) -> onnx.ModelProto:
    """A network of `TEXTS` with its constants; the same each time."""
    model = parser.parse_model(TEXTS[name])
    constants = [port for port in model.graph.input if port.name not in INPUTS]
    random = np.random.default_rng(len(name))
    for port in constants:
        model.graph.input.remove(port)
        model.graph.initializer.append(_constant(port, random))
    onnx.checker.check_model(model, full_check=True)
    return model


def _constant(port: onnx.ValueInfoProto, random: np.random.Generator) -> onnx.TensorProto:
    shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
    values = random.standard_normal(shape)
    if dtype == np.int8:
        return numpy_helper.from_array(
            np.rint(40 * values).clip(-127, 127).astype(dtype), port.name
        )
    summed = shape[0] if len(shape) == 2 else np.prod(shape[1:])
    size = np.sqrt(summed) if len(shape) > 1 else 4
    return numpy_helper.from_array((values / size).astype(dtype), port.name)
