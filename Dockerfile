# Ratchet as an image: Python 3.11, Java 17, the pinned packages, Delta's jars, no root.
#
# How this is checked where there is no Docker: tests/unit/test_layers.py holds that the packages
# copied here are those that `ratchet/` links to, tests/integration/test_wheel.py that they install, and the steps are those of `make setup`, which the tests
# run from a fresh clone. Build it with: docker build -t ratchet .
#
# The base is the index of all architectures that the tag named on 2026-09-21 (Python 3.11.16). A newer one:
# docker buildx imagetools inspect python:3.11-slim-bookworm
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 10001 ratchet
WORKDIR /opt/ratchet

COPY requirements-build.txt requirements.txt ./
RUN pip install --no-cache-dir --no-build-isolation --use-pep517 --require-hashes -r requirements-build.txt \
    && pip install --no-cache-dir --no-build-isolation --use-pep517 --require-hashes -r requirements.txt

COPY pyproject.toml README.md LICENSE ./
COPY ratchet ./ratchet
COPY core ./core
COPY wire ./wire
COPY store ./store
COPY ingest ./ingest
COPY snapshot ./snapshot
COPY merge ./merge
COPY jobs ./jobs
COPY conf ./conf
COPY proto ./proto
RUN pip install --no-cache-dir --no-build-isolation --no-deps . && rm -rf /opt/ratchet/*

# Kernels are compiled once per user of the image, into a folder that can be a volume.
ENV NUMBA_CACHE_DIR=/var/cache/ratchet/numba \
    PYTHONUNBUFFERED=1
RUN mkdir -p /var/cache/ratchet/numba /lake && chown -R ratchet:ratchet /var/cache/ratchet /lake

USER ratchet
COPY scripts/fetch_jars.py /tmp/fetch_jars.py
RUN python /tmp/fetch_jars.py && python -m ratchet.jobs.engine.classcache

WORKDIR /lake
# tini passes SIGTERM on and reaps Spark's workers; Ratchet stops cleanly on it.
ENTRYPOINT ["tini", "--", "ratchet"]
CMD ["--help"]
