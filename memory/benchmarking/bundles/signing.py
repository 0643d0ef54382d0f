"""Signs the manifest of a bundle with an Ed25519 key of the user, such as ~/.ssh/id_ed25519.

The library is `cryptography` (extra `sign`). It reads the keys that people already have for SSH, so there
is no new kind of key to keep.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory.benchmarking.bundles.manifest import Signature
from memory.benchmarking.errors import InvalidBenchmarkConfig, MissingDependency, needs

_PREFIX = b"membench bundle manifest\n"
"""Before the signed bytes, so that the signature can't be used for anything else."""
_KIND = "ssh-ed25519"


def _library() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise needs("cryptography", "sign", "signing bundles and checking signatures") from None
    return serialization


def sign(manifest: bytes, key_file: Path, ask: Callable[[str], str]) -> Signature:
    """Return the signature of a manifest.

    Args:
        manifest: the bytes of `manifest.json`.
        key_file: a private key in the form of OpenSSH or PEM.
        ask: returns the passphrase of an encrypted key; called with a prompt.
    """
    serialization = _library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        data = key_file.read_bytes()
    except OSError as problem:
        raise InvalidBenchmarkConfig(f"--sign {key_file} can't be read: {problem.strerror}") from None
    load = (
        serialization.load_ssh_private_key
        if b"OPENSSH PRIVATE KEY" in data
        else serialization.load_pem_private_key
    )
    try:
        try:
            key = load(data, password=None)
        except TypeError:  # the key is encrypted
            key = load(data, password=ask(f"passphrase of {key_file}: ").encode())
    except (ValueError, TypeError) as problem:
        raise InvalidBenchmarkConfig(f"--sign {key_file} is not a private key: {problem}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidBenchmarkConfig(
            f"--sign {key_file} is not an Ed25519 key: make one with `ssh-keygen -t ed25519`"
        )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    signature = base64.b64encode(key.sign(_PREFIX + manifest)).decode()
    return Signature(public_key=public.decode(), signature=signature)


def check_signature(manifest: bytes, signature: Signature) -> str:
    """Return what is wrong with a signature; empty if it fits the manifest.

    MissingDependency if the library is not installed.
    """
    serialization = _library()
    from cryptography.exceptions import InvalidSignature

    try:
        key = serialization.load_ssh_public_key(signature.public_key.encode())
        if signature.algorithm != "ed25519" or not signature.public_key.startswith(_KIND):
            return f"its algorithm is {signature.algorithm!r}: only ed25519 is known"
        key.verify(base64.b64decode(signature.signature, validate=True), _PREFIX + manifest)
    except InvalidSignature:
        return "it does not fit the manifest: one of the two was changed"
    except ValueError as problem:
        return f"it can't be read: {problem}"
    return ""


def can_check() -> bool:
    """Return whether signatures can be checked here."""
    try:
        _library()
    except MissingDependency:
        return False
    return True


def key_name(public_key: str) -> str:
    """Return the fingerprint of a public key, as `ssh-keygen -l` prints it."""
    parts = public_key.split()
    try:
        digest = hashlib.sha256(base64.b64decode(parts[1], validate=True)).digest()
    except (IndexError, ValueError):
        return "unreadable"
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def read_public_keys(path: Path) -> set[str]:
    """Return the fingerprints of the Ed25519 keys in a file with one key a line, as in authorized_keys."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as problem:
        raise InvalidBenchmarkConfig(f"--key {path} can't be read: {problem}") from None
    keys = {line[line.index(_KIND) :] for line in lines if _KIND in line and not line.startswith("#")}
    if not keys:
        raise InvalidBenchmarkConfig(f"--key {path} has no line with {_KIND}: give a public key of OpenSSH")
    return {key_name(key) for key in keys}
