#!/usr/bin/env bash
# Downloads the headers of cuDNN's frontend with pip: fetch_cudnn_frontend.sh FOLDER puts them into FOLDER/include/. The wheel
# is the same for every Python version and is verified by its hash.
set -euo pipefail
folder=$1
version=1.32.0
sum=c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0

if [ "$(cat "$folder/version" 2>/dev/null || true)" = $version ]; then exit 0; fi
printf "==> Fetching the headers of cuDNN's frontend $version with pip: 12 MB\n" >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
printf 'nvidia-cudnn-frontend==%s --hash=sha256:%s\n' $version $sum >"$work/wanted"
"$work/venv/bin/python" -m pip download -q --disable-pip-version-check --no-deps --require-hashes -r "$work/wanted" \
  --only-binary=:all: --implementation cp --python-version 3.11 --abi cp311 --platform manylinux_2_28_x86_64 -d "$work"
rm -rf "$folder"
"$work/venv/bin/python" - "$work"/*.whl "$folder" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith("include/")])
PYTHON
echo $version >"$folder/version"
