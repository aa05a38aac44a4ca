# One image for the scheduler, the workers and the jobs of figrl.
#
#   docker build --tag registry.example/figrl:0.1.0 .
#   docker run --rm registry.example/figrl:0.1.0 figrl demo
#   docker run --rm --volume /srv/figrl:/data registry.example/figrl:0.1.0 figrl reindex /data/nightly.yaml
#
# It has no entry point: the command is given whole, `figrl ...`, `dask scheduler ...` or `dask worker ...`.
ARG PYTHON=docker.io/library/python:3.11-slim

FROM ${PYTHON} AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY pipeline pipeline
COPY jobs jobs
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM ${PYTHON}
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/figrl-*.whl)[ann,cloud]" && rm -r /wheels
RUN useradd --create-home --uid 1000 figrl && install --directory --owner figrl --group figrl /data
USER 1000:1000
WORKDIR /data
CMD ["figrl", "--help"]
