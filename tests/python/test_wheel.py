"""Builds the wheel and installs it in an empty environment."""

import os
import subprocess
import sys
import venv

import pytest


def test_the_wheel_installs_into_a_fresh_environment(source, tmp_path):
    script = source / "experiments" / "python" / "build_wheel.sh"
    built = subprocess.run(
        ["bash", str(script), os.environ["DFLOP_EXECUTABLE"], str(tmp_path / "wheel")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if built.returncode != 0 and "No matching distribution found" in built.stderr:
        pytest.skip("pip finds no packages: there is no network")
    assert built.returncode == 0, built.stderr
    wheel = built.stdout.split()[-1]
    assert "-py3-none-manylinux_" in wheel
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", wheel], check=True)
    environment = {k: v for k, v in os.environ.items() if k not in ("DFLOP_EXECUTABLE", "PYTHONPATH")}
    environment["PATH"] = "/nowhere"
    program = (
        "import sys, dflop; print(dflop.executable()); print(sorted(dflop.partition([3, 2, 2, 1], 2))); "
        "print('torch' in sys.modules, 'numpy' in sys.modules, dflop.__version__)"
    )
    run = subprocess.run(
        [python, "-c", program], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True
    )
    path, lists, modules = run.stdout.splitlines()
    assert path.startswith(str(tmp_path / "venv"))
    assert lists == "[[0, 3], [1, 2]]"
    assert modules.split()[:2] == ["False", "False"]
    assert os.path.basename(wheel).split("-")[1] == modules.split()[2]
    version = subprocess.run(
        [str(tmp_path / "venv" / "bin" / "dflop"), "--version"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert version.stdout.startswith("dflop ")
    installed = tmp_path / "venv" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    assert (installed / "dflop" / "py.typed").exists()
    # There is a license for each bundled library, including Cbc and its parts, and none for system libraries.
    licenses = set(os.listdir(installed / "dflop" / "licenses"))
    assert {"dflop", "coinor-libcbc3", "libtbb12", "liblapack3", "libgfortran5"} <= licenses
    assert not [name for name in licenses if name.startswith(("libc6", "lib32", "libstdc++", "zlib"))]
    libraries = {name.split("-")[0] for name in os.listdir(installed / "dflop.libs")}
    if "libavformat" in libraries:  # FFmpeg brings about 100 libraries, and many packages have more than one
        assert any(name.startswith("libavformat") for name in licenses)
    else:
        assert len(licenses) - 1 == len(libraries) - 3, "ICU has three libraries, Clp two"
    (metadata,) = installed.glob("dflop-*.dist-info/METADATA")
    fields, _, page = metadata.read_text().partition("\n\n")
    assert page.startswith("# dflop") and "Description-Content-Type: text/markdown" in fields
    for field in ("License-Expression: Apache-2.0", "Classifier: Typing :: Typed", "Requires-Python: >=3.9"):
        assert field in fields.splitlines()
