"""The networks of the zoo: what each is, its options, and the figures published for it.

The one idea: an entry is data, a family's builder with its options filled in. Published figures
are for the default options, in multiply-accumulates (not FLOPs) and trained parameters, and a test
compares the built graph with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

import onnx

from archgen.zoo.builder import NetworkBuilder, ZooError
from archgen.zoo.classifiers import densenet121, googlenet, resnet, shufflenet_v2, squeezenet, vgg16
from archgen.zoo.counts import Counts, count
from archgen.zoo.decoders import gpt2, llama, moe
from archgen.zoo.dense_prediction import unet, yolov8n
from archgen.zoo.mobile import efficientnet_b0, mobilenet_v1, mobilenet_v2, mobilenet_v3
from archgen.zoo.other import conformer, dlrm, lstm_kws, whisper_encoder
from archgen.zoo.transformer import bert, vit

__all__ = ["CATALOG", "Counts", "Option", "ZooError", "ZooNetwork", "build", "count"]

Option = int | float

_IMAGE: dict[str, Option] = {"image": 224, "classes": 1000}
_IMAGE_WIDTH: dict[str, Option] = {**_IMAGE, "width": 1.0}
_TORCHVISION = "torchvision's weights tables (num_params, _ops)"


@dataclass(frozen=True)
class ZooNetwork:
    """One network: ``build(builder, batch=..., **options)`` appends it; ``options`` are all it
    takes, with their defaults. ``macs`` and ``parameters`` are the published figures at batch 1,
    good to ``tolerance`` (relative, as many digits as ``source`` prints)."""

    description: str
    build: Callable[..., None]
    options: Mapping[str, Option]
    macs: float
    parameters: float
    source: str
    tolerance: float = 1e-3


def _resnet(depth: int, macs: float, parameters: int) -> ZooNetwork:
    text = f"ResNet-{depth} v1.5, image classification"
    return ZooNetwork(
        text, partial(resnet, depth=depth), _IMAGE_WIDTH, macs, parameters, _TORCHVISION
    )


def _bert(layers: int, hidden: int, heads: int) -> dict[str, Option]:
    shape = {"layers": layers, "hidden": hidden, "heads": heads}
    return {"sequence": 128, **shape, "vocabulary": 30522, "positions": 512}


def _vit(layers: int, hidden: int, heads: int) -> dict[str, Option]:
    return {**_IMAGE, "patch": 16, "layers": layers, "hidden": hidden, "heads": heads}


CATALOG: dict[str, ZooNetwork] = {
    "resnet18": _resnet(18, 1.814e9, 11_689_512),
    "resnet34": _resnet(34, 3.664e9, 21_797_672),
    "resnet50": _resnet(50, 4.089e9, 25_557_032),
    "resnet101": _resnet(101, 7.801e9, 44_549_160),
    "resnet152": _resnet(152, 11.514e9, 60_192_808),
    "vgg16": ZooNetwork(
        description="VGG-16 without BatchNormalization, image classification",
        build=vgg16,
        options={**_IMAGE_WIDTH, "hidden": 4096},
        macs=15.47e9,
        parameters=138_357_544,
        source=_TORCHVISION,
    ),
    "mobilenet_v1": ZooNetwork(
        description="MobileNetV1, depthwise separable convolutions",
        build=mobilenet_v1,
        options=_IMAGE_WIDTH,
        macs=569e6,
        parameters=4.2e6,
        source="Howard et al. 2017, tables 4 and 6",
        tolerance=1e-2,
    ),
    "mobilenet_v2": ZooNetwork(
        description="MobileNetV2, inverted residuals with linear bottlenecks",
        build=mobilenet_v2,
        options=_IMAGE_WIDTH,
        macs=300.8e6,
        parameters=3_504_872,
        source=_TORCHVISION,
    ),
    "mobilenet_v3": ZooNetwork(
        description="MobileNetV3-Large (`small=1`: -Small), gated inverted residuals",
        build=mobilenet_v3,
        options={**_IMAGE_WIDTH, "small": 0},
        macs=216.6e6,
        parameters=5_483_032,
        source=_TORCHVISION,
    ),
    "efficientnet_b0": ZooNetwork(
        description="EfficientNet-B0, gated inverted residuals with Swish",
        build=efficientnet_b0,
        options=_IMAGE_WIDTH,
        macs=386e6,
        parameters=5_288_548,
        source=_TORCHVISION,
        tolerance=2e-3,
    ),
    "shufflenet_v2": ZooNetwork(
        description="ShuffleNetV2 1x, halves of channels computed, kept and shuffled",
        build=shufflenet_v2,
        options=_IMAGE_WIDTH,
        macs=144.9e6,
        parameters=2_278_604,
        source=_TORCHVISION,
    ),
    "squeezenet": ZooNetwork(
        description="SqueezeNet 1.1, fire modules",
        build=squeezenet,
        options=_IMAGE_WIDTH,
        macs=0.349e9,
        parameters=1_235_496,
        source=_TORCHVISION,
    ),
    "densenet121": ZooNetwork(
        description="DenseNet-121, dense concatenation",
        build=densenet121,
        options={**_IMAGE, "growth": 32},
        macs=2.834e9,
        parameters=7_978_856,
        source=_TORCHVISION,
    ),
    "googlenet": ZooNetwork(
        description="GoogLeNet with BatchNormalization, inference graph",
        build=googlenet,
        options=_IMAGE_WIDTH,
        macs=1.498e9,
        parameters=6_624_904,
        source=_TORCHVISION,
    ),
    "unet": ZooNetwork(
        description="U-Net, padded, with BatchNormalization, semantic segmentation",
        build=unet,
        options={"image": 256, "classes": 1, "width": 1.0},
        macs=48.17e9,
        parameters=31_037_633,
        source="parameters: milesial/Pytorch-UNet; MACs: 54.6 G as profilers print, which count "
        "each of the 2.147 G of transposed convolutions four times",
    ),
    "yolov8n": ZooNetwork(
        description="A detector like YOLOv8n, BatchNormalization folded, boxes decoded",
        build=yolov8n,
        options={"image": 640, "classes": 80, "width": 1.0},
        macs=8.7e9 / 2,
        parameters=3_151_904,
        source="Ultralytics' summary (fused) and, as constants, the places of 8 400 anchors",
        tolerance=1e-2,
    ),
    "bert_base": ZooNetwork(
        description="BERT base encoder and pooler, 128 tokens",
        build=bert,
        options=_bert(layers=12, hidden=768, heads=12),
        macs=22.5e9 / 2,
        parameters=109_482_240,
        source="TinyBERT (Jiao et al. 2020): 22.5 GFLOPs; parameters: transformers' BertModel",
        tolerance=1e-2,
    ),
    "bert_large": ZooNetwork(
        description="BERT large encoder and pooler, 128 tokens",
        build=bert,
        options=_bert(layers=24, hidden=1024, heads=16),
        macs=39.46e9,
        parameters=335_141_888,
        source="MACs: layers x (12 s d^2 + 2 s^2 d); parameters: transformers' BertModel",
    ),
    "vit_b16": ZooNetwork(
        description="ViT-B/16, vision transformer with a class token",
        build=vit,
        options=_vit(layers=12, hidden=768, heads=12),
        macs=17.564e9,
        parameters=86_567_656,
        source=_TORCHVISION,
    ),
    "vit_tiny": ZooNetwork(
        description="ViT-Ti/16, the plain backbone of DeiT-Ti",
        build=vit,
        options=_vit(layers=12, hidden=192, heads=3),
        macs=1.2537e9,
        parameters=5_717_416,
        source="MACs: layers x (12 s d^2 + 2 s^2 d) and patches; parameters: timm's model card",
    ),
    "gpt2": ZooNetwork(
        description="GPT-2 small, 1024 tokens (or behind `past`), logits of the last one",
        build=gpt2,
        options={
            "sequence": 1024,
            "past": 0,
            "layers": 12,
            "hidden": 768,
            "heads": 12,
            "vocabulary": 50257,
            "positions": 1024,
        },
        macs=106.34e9,
        parameters=124_439_808,
        source="MACs: layers x (12 s d^2 + 2 s^2 d) + d v; parameters: transformers' GPT2Model",
    ),
    "whisper_encoder": ZooNetwork(
        description="Whisper tiny's encoder, 30 seconds of log-mel spectrogram",
        build=whisper_encoder,
        options={"frames": 3000, "mels": 80, "layers": 4, "hidden": 384, "heads": 6},
        macs=18.47e9,
        parameters=8_208_384,
        source="MACs: 3 d (80 t + d t / 2) + layers x (12 s d^2 + 2 s^2 d), t = 2 s = 3000; "
        "parameters: transformers' WhisperEncoder",
    ),
    "conformer": ZooNetwork(
        description="A block of Conformer-S, ten seconds of speech after subsampling",
        build=conformer,
        options={"sequence": 250, "layers": 1, "hidden": 144, "heads": 4, "kernel": 31},
        macs=138.3e6,
        parameters=485_568,
        source="sizes: Gulati et al. 2020, table 1; MACs: s (23 d^2 + k d) + 2 s^2 d; "
        "parameters: 23 d^2 + k d + 29 d",
    ),
    "lstm_kws": ZooNetwork(
        description="Keyword spotting by one LSTM layer over a second of coefficients",
        build=lstm_kws,
        options={"frames": 49, "features": 10, "hidden": 118, "classes": 12},
        macs=5.9e6 / 2,
        parameters=63.3e3,
        source="Zhang et al. 2017, basic LSTM S: 5.9 MOps, 63.3 KB with a byte per weight",
        tolerance=1e-2,
    ),
    "dlrm": ZooNetwork(
        description="DLRM's Criteo Kaggle model, tables cut to 10 000 rows",
        build=dlrm,
        options={"features": 13, "tables": 26, "rows": 10_000, "width": 16, "hidden": 512},
        macs=486_032,
        parameters=4_635_985,
        source="sizes: Naumov et al. 2019 (bottom 13-512-256-64-16, top 367-512-256-1)",
    ),
    "moe": ZooNetwork(
        description="Mixture of experts: 8 of 32 SwiGLU layers, all computed or `gathered=1`",
        build=moe,
        options={
            "sequence": 128,
            "hidden": 1024,
            "wide": 512,
            "experts": 32,
            "active": 8,
            "gathered": 0,
        },
        macs=6.446e9,
        parameters=50_364_416,
        source="sizes: Granite 3.0 1B-A400M's configuration; MACs: s e (3 d w + d)",
    ),
    "llama": ZooNetwork(
        description="Llama-style decoder, one layer, a prompt of 1024 tokens (or behind `past`)",
        build=llama,
        options={
            "sequence": 1024,
            "layers": 1,
            "hidden": 2048,
            "heads": 16,
            "groups": 4,
            "wide": 5632,
            "past": 0,
            "room": 0,
        },
        macs=50.47e9,
        parameters=45_095_000,
        source="MACs: layers x (s p + 2 s^2 d), p: parameters of the layer's products",
    ),
}


def build(
    name: str, batch: int = 1, *, weights: bool = True, seed: int = 0, **options: Option
) -> onnx.ModelProto:
    """Builds network ``name`` with fixed input shapes for ``batch``.

    ``options`` override the entry's defaults; equal arguments give equal bytes. With
    ``weights=False`` parameters have shapes without data: to be counted, not run. Raises
    ``ZooError`` for an unknown name or option, or sizes that leave no output.
    """
    if name not in CATALOG:
        raise ZooError(f"unknown network {name!r}{_guess(name, CATALOG)}; known: {_list(CATALOG)}")
    entry = CATALOG[name]
    for option, value in options.items():
        if option not in entry.options:
            guess = _guess(option, entry.options)
            known = _list(entry.options)
            raise ZooError(f"{name} has no option {option!r}{guess}; it has: {known}")
        none = value == entry.options[option] == 0
        if not (none or 0 < value < math.inf):
            raise ZooError(f"{name}: {option}={value} must be positive")
    if batch < 1:
        raise ZooError(f"{name}: batch={batch} must be positive")
    net = NetworkBuilder(name, seed, weights)
    entry.build(net, batch=batch, **{**entry.options, **options})
    return net.finish()


def _guess(word: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(word, known, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _list(known: Mapping[str, object]) -> str:
    return ", ".join(known)
