#!/bin/sh
# Writes requirements*.txt from pyproject.toml: exact versions with the hashes of all their files.
#
# usage: lock.sh PIP-COMPILE [--upgrade]
#
# Neither an index's address nor a folder of this machine may get into the files, so both are kept
# out of the output, and local folders out of the search.
set -eu
compile=$1
shift
unset PIP_FIND_LINKS
export CUSTOM_COMPILE_COMMAND="make lock"

lock() {
    "$compile" --quiet --generate-hashes --allow-unsafe --strip-extras --no-config \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options "$@"
}

lock "$@" --all-build-deps --only-build-deps -o requirements-build.txt pyproject.toml
lock "$@" -o requirements.txt pyproject.toml
# What the developers add must not move what the users get.
lock "$@" --extra dev -c requirements.txt -c requirements-build.txt \
    -o requirements-dev.txt pyproject.toml
