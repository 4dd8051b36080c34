#!/bin/sh
# Prints the path of a Python 3.11 that can make virtual environments; installs Debian's if none.
#
# A `python3.11` on the PATH may be a pyenv shim that only says it is not the chosen version, and
# Debian's own may lack ensurepip, so each candidate has to show what it can do.
set -eu

usable() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null
}

search() {
    for candidate in "${PYTHON:-}" python3.11 /usr/bin/python3.11 python3 \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.11*/bin/python; do
        if [ -n "$candidate" ] && usable "$candidate"; then
            # The program itself, not a shim: a venv keeps pointing at what it was made from.
            "$candidate" -c 'import sys; print(sys.executable)'
            return 0
        fi
    done
    return 1
}

search && exit 0

if command -v apt-get >/dev/null; then
    as_root=""
    [ "$(id -u)" -eq 0 ] || as_root="sudo -n"
    echo "Installing Debian's Python 3.11 ..." >&2
    if $as_root apt-get -q update >&2 &&
        DEBIAN_FRONTEND=noninteractive $as_root apt-get -q install -y --no-install-recommends \
            python3.11 python3.11-venv >&2; then
        search && exit 0
    fi
fi
echo "Ratchet needs Python 3.11 with venv: apt-get install python3.11 python3.11-venv (as root)," >&2
echo "or set PYTHON to one." >&2
exit 1
