#!/usr/bin/env bash
# Creates the virtual environment for tests with torch: make_environment.sh [--small] FOLDER
# If the libraries of the CUDA 13 toolkit are installed, torch is installed without its own copies of them. If they are
# not, --small ends with exit code 77 instead of fetching 3 GB: the index has no torch for Linux on x86_64 without CUDA.
set -euo pipefail
small=0
if [ "$1" = --small ]; then small=1; shift; fi
folder=$1
python=$folder/bin/python

say() { printf '==> %s\n' "$*" >&2; }
installed() { "$python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)"; }

has_toolkit() {
  local library libraries
  libraries=$(ldconfig -p)
  for library in libcublas.so.13 libcudart.so.13 libcudnn.so.9 libcufft.so.12 libcupti.so.13 libcusparse.so.12 libnvrtc.so.13; do
    grep -q "$library " <<<"$libraries" || return 1
  done
}

# Prints an installed package's pinned requirements among NAME..., as name==version: pins PACKAGE NAME...
pins() {
  "$python" - "$@" <<'PYTHON'
import importlib.metadata, re, sys
for line in importlib.metadata.requires(sys.argv[1]):
    found = re.match(r"([\w-]+)(\[.*\])?\s*==\s*([\w.]+)", line)
    if found and found[1] in sys.argv[2:]:
        print(f"{found[1]}=={found[3]}")
PYTHON
}

[ -x "$python" ] || python3 -m venv "$folder"
pip=("$python" -m pip install -q --disable-pip-version-check --no-warn-conflicts)

if ! installed torch; then
  if has_toolkit; then
    say "Fetching torch and four libraries with pip: 1.1 GB, 2.1 GB in $folder (the CUDA 13 toolkit has the others)"
    "${pip[@]}" --no-deps torch
    "${pip[@]}" --no-deps $(pins torch nvidia-nccl-cu13 nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 cuda-toolkit)
    "${pip[@]}" --no-deps $(pins cuda-toolkit nvidia-cufile)
    "${pip[@]}" filelock typing-extensions "setuptools>=77" sympy networkx jinja2 fsspec
  elif [ $small = 1 ]; then
    say "torch would be 3 GB here, as there is no CUDA 13 toolkit whose libraries it could use: it is not fetched"
    exit 77
  else
    say "Fetching torch and its libraries with pip: 3 GB"
    "${pip[@]}" torch
  fi
fi
if ! installed pytest || ! installed mypy; then
  say "Fetching pytest, mypy, numpy and pandas with pip: 60 MB"
  "${pip[@]}" pytest mypy numpy pandas
fi
# These need torch, which is installed. pip would fetch the libraries left out above.
if ! installed torchdata || ! installed transformers || ! installed accelerate || ! installed deepspeed; then
  say "Fetching torchdata, transformers, accelerate and deepspeed with pip: 60 MB"
  "${pip[@]}" setuptools wheel transformers psutil requests urllib3
  "${pip[@]}" --no-deps torchdata accelerate
  "${pip[@]}" einops hjson msgpack ninja py-cpuinfo pydantic tqdm
  "${pip[@]}" --no-deps --no-build-isolation deepspeed || say "deepspeed does not install here; its example is skipped"
fi
