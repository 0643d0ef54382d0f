"""What a bundle says about itself: every file with its SHA-256, where it comes from, who signed it."""

from __future__ import annotations

import msgspec

MANIFEST_FILE = "manifest.json"
SIGNATURE_FILE = "signature.json"
BUNDLE_FORMAT = 1
"""The version of the bundle's own layout; the runs inside have a format of their own."""


class BundledFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a bundle."""

    name: str
    """Its path inside the bundle."""
    bytes: int
    sha256: str


class BundledRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a bundle: what a reader wants to know before opening it."""

    id: str
    profile: str
    status: str
    started_at: str
    command: str
    targets: list[str]
    machine: str
    """CPU, cores, RAM and operating system, in words."""
    fingerprint: str
    """The digest of the machine and the versions; runs with the same one can be compared."""
    suite: str = ""
    """`league` for a run of `membench league`; empty for others."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `manifest.json`."""

    kind: str = "membench bundle"
    bundle_format: int = BUNDLE_FORMAT
    membench: str
    """The version of membench that made the bundle."""
    created_at: str
    """When the newest run ended. So the same runs always give the same bytes."""
    left_out: list[str]
    """What was replaced before the files were bundled, in words; empty if nothing was."""
    runs: list[BundledRun]
    data_sets: dict[str, str] = {}
    """SHA-256 of each data set that a quality benchmark used, by its name."""
    files: list[BundledFile]
    """All files except this one and the signature, sorted by name."""


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `signature.json`: an Ed25519 signature of the bytes of `manifest.json`."""

    algorithm: str = "ed25519"
    public_key: str
    """In OpenSSH's form: `ssh-ed25519 AAAA…`."""
    signature: str
    """In base64."""
