# The images of the compose files. LIST is a list of requirements/: dashboard, worker, or gpu-worker for GPU nodes.
FROM python:3.12-slim AS packages
ARG LIST=worker
COPY requirements/${LIST}.txt /requirements/
# Bytecode stays, because the services cannot write here and would compile it at each start. Tests of packages and what
# they bring for notebooks (50 MB) do not.
# `tilewatch toolchain add` runs pip.
RUN python -m venv $([ "$LIST" != dashboard ] || echo --without-pip) /opt/tilewatch \
    && pip --python /opt/tilewatch/bin/python install --no-cache-dir --no-deps --require-hashes \
       -r /requirements/${LIST}.txt \
    && find /opt/tilewatch -type d -name tests -prune -exec rm -r {} + \
    && rm -rf /opt/tilewatch/share/jupyter /opt/tilewatch/lib/python3.12/site-packages/pydeck/nbextension/static \
    && echo /app > /opt/tilewatch/lib/python3.12/site-packages/tilewatch.pth

FROM python:3.12-slim AS product
COPY requirements/build.txt /requirements/
RUN pip install --no-cache-dir --no-deps --require-hashes -r /requirements/build.txt
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY kernels kernels
COPY db db
COPY worker worker
COPY dashboard dashboard
COPY recordings recordings
RUN pip install --no-cache-dir --no-deps --no-build-isolation --target /app . \
    && sed -i '1s|.*|#!/opt/tilewatch/bin/python|' /app/bin/tilewatch

FROM python:3.12-slim
ARG LIST=worker
# git reads the watched repository, which is mounted and belongs to somebody else, and clones others, by SSH where their
# address says so. g++ is what nvcc compiles DeepGEMM's kernels with at first use, so only GPU nodes have it.
RUN if [ "$LIST" != dashboard ]; then \
        apt-get update \
        && apt-get install -y --no-install-recommends git openssh-client $([ "$LIST" = worker ] || echo g++) \
        && apt-get clean && rm -rf /var/lib/apt/lists/* \
        && git config --system --add safe.directory /repository; \
    fi \
    && useradd --no-create-home --home-dir /data --uid 1000 tilewatch \
    && install -d -o 1000 -g 1000 -m 750 /data /cubins
COPY --from=packages /opt/tilewatch /opt/tilewatch
COPY --from=product /app /app

# A number, since Kubernetes cannot tell from a name that it is not root.
USER 1000
WORKDIR /app
ENV PATH=/app/bin:/opt/tilewatch/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 \
    TILEWATCH_HOME=/data TILEWATCH_REPOSITORY=/repository TILEWATCH_STORE_URL=file:///cubins
