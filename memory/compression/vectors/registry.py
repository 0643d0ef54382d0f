"""Codecs by name: make one from options, or load a saved one."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from memory.compression.vectors._serialization import unpack
from memory.compression.vectors.autoencoder import AutoencoderCodec
from memory.compression.vectors.base import VectorCodec
from memory.compression.vectors.binary import BinaryCodec
from memory.compression.vectors.centred import CentredCodec
from memory.compression.vectors.float32 import Float32Codec
from memory.compression.vectors.int8 import Int8Codec
from memory.compression.vectors.pca import PcaCodec
from memory.compression.vectors.pq import PqCodec
from memory.compression.vectors.scalar import ScalarCodec
from memory.compression.vectors.truncate import TruncateCodec
from memory.errors import CodecDamaged, InvalidCodecOption, UnknownCodec

_CODECS: dict[str, type[VectorCodec]] = {
    codec.name: codec
    for codec in (
        Float32Codec,
        Int8Codec,
        TruncateCodec,
        PcaCodec,
        AutoencoderCodec,
        BinaryCodec,
        ScalarCodec,
        CentredCodec,
        PqCodec,
    )
}

CODEC_NAMES: tuple[str, ...] = tuple(_CODECS)


def make_codec(name: str, dimensions: int, **options: Any) -> VectorCodec:
    """Return a new codec that is not fitted.

    Args:
        name: one of CODEC_NAMES.
        dimensions: the length of a vector.
        options: the keyword arguments of the codec's class.
    """
    if name not in _CODECS:
        near = difflib.get_close_matches(name.lower(), _CODECS, n=1, cutoff=0.4)
        hint = f", did you mean '{near[0]}'?" if near else ""
        raise UnknownCodec(f"there is no codec '{name}'{hint} (the codecs are: {', '.join(_CODECS)})")
    codec = _CODECS[name]
    known = [key for key in inspect.signature(codec).parameters if key != "dimensions"]
    for option in options:
        if option not in known:
            raise InvalidCodecOption(
                f"codec '{name}' has no option '{option}' (it has: {', '.join(known) or 'none'})"
            )
    return codec(dimensions, **options)


def load_codec(data: bytes) -> VectorCodec:
    """Return the codec that any codec's ``save`` wrote, or raise CodecDamaged."""
    saved = unpack(data)
    if saved.name not in _CODECS:
        raise CodecDamaged(
            f"the data holds a codec '{saved.name}', which this version does not have: "
            "upgrade agentmemory-tiers"
        )
    return _CODECS[saved.name]._from_saved(saved)
