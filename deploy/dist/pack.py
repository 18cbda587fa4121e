"""Writes an OCI image and a wheel, byte for byte the same from the same files.

Usage: pack.py image ROOT VERSION ARCHITECTURE FILE | pack.py wheel BINARY VERSION GLIBC MACHINE FOLDER
"""
import base64
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import time
import zipfile
from pathlib import Path

LEVEL = int(os.environ.get("LEVEL", "9"))
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
CREATED = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))


def tarred(files: list[tuple[str, bytes, int]]) -> bytes:
    """Folders are names that end with a slash."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content, mode in files:
            info = tarfile.TarInfo(name.rstrip("/"))
            info.mode, info.mtime = mode, EPOCH
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return written.getvalue()


def image(root: Path, version: str, architecture: str, file: Path) -> None:
    files: list[tuple[str, bytes, int]] = []
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_dir():
            files.append((name + "/", b"", 0o1777 if name == "tmp" else 0o755))
        else:
            files.append((name, path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644))
    plain = tarred(files)
    layer = gzip.compress(plain, LEVEL, mtime=0)
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    def document(value: object, kind: str) -> dict[str, object]:
        return blob(json.dumps(value, sort_keys=True).encode(), kind)

    config = document({
        "created": CREATED, "architecture": architecture, "os": "linux",
        "config": {
            "User": "65532:65532", "Entrypoint": ["/usr/bin/dvp"], "Cmd": ["--help"], "WorkingDir": "/var/lib/dvp",
            "Env": ["PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "Labels": {"org.opencontainers.image.title": "dvp", "org.opencontainers.image.version": version},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
        "history": [{"created": CREATED, "created_by": "deploy/dist/build"}],
    }, "config.v1+json")
    stored = blob(layer, "layer.v1.tar+gzip")
    manifest = document({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
        "layers": [stored],
    }, "manifest.v1+json")
    manifest["platform"] = {"architecture": architecture, "os": "linux"}
    manifest["annotations"] = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"dvp:{version}"}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}
    # What older loaders read.
    named = lambda of: f"blobs/{str(of['digest']).replace(':', '/')}"
    older = [{"Config": named(config), "RepoTags": [f"dvp:{version}"], "Layers": [named(stored)]}]
    layout = [("blobs/", b"", 0o755), ("blobs/sha256/", b"", 0o755)]
    layout += [(f"blobs/sha256/{digest}", blobs[digest], 0o644) for digest in sorted(blobs)]
    layout += [("index.json", json.dumps(index, sort_keys=True).encode(), 0o644),
               ("manifest.json", json.dumps(older, sort_keys=True).encode(), 0o644),
               ("oci-layout", b'{"imageLayoutVersion": "1.0.0"}', 0o644)]
    file.write_bytes(tarred(layout))


def wheel(binary: Path, version: str, glibc: str, machine: str, folder: Path) -> None:
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_{machine}"
    source = Path(__file__).parent.parent / "sandbox"
    info = f"dvp_sandbox-{version}.dist-info"
    metadata = ("Metadata-Version: 2.1\nName: dvp-sandbox\n" f"Version: {version}\n"
                "Summary: The whole of dvp on one machine, for those who integrate with it\nLicense: MIT OR Apache-2.0\n"
                "Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n")
    files = {
        "dvp_sandbox/__init__.py": (source / "python/dvp_sandbox.py").read_bytes(),
        "dvp_sandbox/dvp": binary.read_bytes(),
        f"{info}/METADATA": metadata.encode() + (source / "README.md").read_bytes(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: dvp\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        f"{info}/entry_points.txt": b"[console_scripts]\ndvp-sandbox = dvp_sandbox:main\n",
    }
    digest = lambda content: base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, content in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(folder / f"dvp_sandbox-{version}-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(EPOCH)[:6])
            entry.external_attr = (0o100755 if name.endswith("/dvp") else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content, compresslevel=LEVEL)


if sys.argv[1] == "image":
    image(Path(sys.argv[2]), sys.argv[3], sys.argv[4], Path(sys.argv[5]))
else:
    wheel(Path(sys.argv[2]), *sys.argv[3:6], Path(sys.argv[6]))
