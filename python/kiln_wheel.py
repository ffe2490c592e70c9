"""Makes the wheel of the package kiln: its Python files, kiln_abi.def and libkiln.so. A PEP 517 build back end that needs
only Python, so that `pip wheel ./python` works without a network.

The library is the one that KILN_LIBRARY names; without it, CMake builds the release preset under build/wheel."""

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

_here = Path(__file__).resolve().parent
_tree = _here.parent
_metadata = """Metadata-Version: 2.1
Name: kiln
Version: {version}
Summary: Backward passes of mixture-of-experts layers, generated at run time
License: Apache-2.0
Requires-Python: >=3.8
Description-Content-Type: text/markdown

"""


def _version():
    return re.search(r"project\(kiln VERSION ([0-9.]+)", (_tree / "CMakeLists.txt").read_text()).group(1)


def _library():
    """Path of the libkiln.so to pack."""
    named = os.environ.get("KILN_LIBRARY")
    if named:
        return Path(named)
    build = _tree / "build/wheel"
    subprocess.run(["cmake", "--preset", "release", "-B", str(build), "-DKILN_TESTS=OFF"], cwd=_tree, check=True)
    subprocess.run(["cmake", "--build", str(build), "--target", "kiln"], cwd=_tree, check=True)
    return build / "libkiln.so"


def _stripped(library):
    """The library's bytes, without debug information where binutils are at hand."""
    if not shutil.which("strip"):
        return library.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "libkiln.so"
        subprocess.run(["strip", "--strip-unneeded", "-o", str(out), str(library.resolve())], check=True)
        return out.read_bytes()


def _tag(library_bytes):
    """py3-none-<platform>. The library needs libc and nothing else, so the oldest glibc that has the symbols it names says
    where it runs (PEP 600)."""
    machine = platform.machine()
    versions = [int(v) for v in re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", library_bytes)]
    return f"py3-none-manylinux_2_{max(versions)}_{machine}" if versions else f"py3-none-linux_{machine}"


def _files(version):
    """(tag, {path in the wheel: bytes}), without RECORD."""
    library = _stripped(_library())
    tag = _tag(library)
    files = {f"kiln/{p.name}": p.read_bytes() for p in sorted((_here / "kiln").glob("*.py"))}
    files["kiln/kiln_abi.def"] = (_tree / "include/kiln/kiln_abi.def").read_bytes()
    files["kiln/libkiln.so"] = library
    info = f"kiln-{version}.dist-info"
    files[f"{info}/METADATA"] = _metadata.format(version=version).encode() + (_tree / "docs/python.md").read_bytes()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: kiln_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/LICENSE"] = (_tree / "LICENSE").read_bytes()
    return tag, files


def _record(files, path):
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join(lines + [f"{path},,", ""]).encode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: write the wheel into the directory, return its name. The same files give the same bytes."""
    version = _version()
    tag, files = _files(version)
    record = f"kiln-{version}.dist-info/RECORD"
    files[record] = _record(files, record)
    name = f"kiln-{version}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            wheel.writestr(entry, data)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517 asks for it; the source is the repository."""
    raise NotImplementedError("kiln has no source distribution: build the wheel from its repository")
