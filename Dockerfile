# One image for every service of docker-compose.yml. LIST is a list of requirements/: base, or deepgemm for GPU nodes.
FROM python:3.12-slim
ARG LIST=base

# git reads the watched repository, which is mounted and belongs to somebody else, and clones others, by SSH where their
# address says so; g++ is what nvcc compiles
# DeepGEMM's kernels with at first use, so only GPU nodes have it.
RUN apt-get update \
    && apt-get install -y --no-install-recommends git openssh-client $([ "$LIST" = base ] || echo g++) \
    && rm -rf /var/lib/apt/lists/* \
    && git config --system --add safe.directory /repository \
    && useradd --create-home --home-dir /data --uid 1000 tilewatch

WORKDIR /app
COPY requirements/build.txt requirements/${LIST}.txt requirements/s3.txt requirements/
RUN pip install --no-cache-dir --no-deps --require-hashes \
    -r requirements/build.txt -r requirements/${LIST}.txt -r requirements/s3.txt

COPY pyproject.toml README.md ./
COPY src src
COPY kernels kernels
COPY db db
COPY worker worker
COPY dashboard dashboard
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable .

USER tilewatch
ENV TILEWATCH_HOME=/data TILEWATCH_REPOSITORY=/repository PYTHONUNBUFFERED=1
VOLUME /data
