"""Vector codecs: they store vectors in fewer bytes, and share one interface.

codec = make_codec("pq", 256).fit(vectors)
codes = codec.encode(vectors)
near = load_codec(codec.save()).decode(codes)
"""

from memory.compression.vectors.autoencoder import AutoencoderCodec
from memory.compression.vectors.base import VectorCodec
from memory.compression.vectors.binary import BinaryCodec
from memory.compression.vectors.float32 import Float32Codec
from memory.compression.vectors.int8 import Int8Codec
from memory.compression.vectors.pca import PcaCodec
from memory.compression.vectors.pq import PqCodec
from memory.compression.vectors.registry import CODEC_NAMES, load_codec, make_codec
from memory.compression.vectors.scalar import ScalarCodec
from memory.compression.vectors.truncate import TruncateCodec
from memory.errors import (
    CodecDamaged,
    CodecError,
    CodecNeedsMoreData,
    CodecNotFitted,
    InvalidCodecOption,
    InvalidVector,
    UnknownCodec,
)

__all__ = [
    "CODEC_NAMES",
    "AutoencoderCodec",
    "BinaryCodec",
    "CodecDamaged",
    "CodecError",
    "CodecNeedsMoreData",
    "CodecNotFitted",
    "Float32Codec",
    "Int8Codec",
    "InvalidCodecOption",
    "InvalidVector",
    "PcaCodec",
    "PqCodec",
    "ScalarCodec",
    "TruncateCodec",
    "UnknownCodec",
    "VectorCodec",
    "load_codec",
    "make_codec",
]
