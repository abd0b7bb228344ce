# One image for every service: the gateway, the Spark master and worker, and the pipeline.
# All of them need the same Python and the same packages, since Spark's executors import them.

FROM python:3.13-slim-bookworm AS build
WORKDIR /build
COPY requirements/ requirements/
RUN python -m venv /opt/uv \
    && /opt/uv/bin/pip install --no-cache-dir --require-hashes -r requirements/uv.lock \
    && python -m venv /opt/tidegate
ENV UV_PYTHON_DOWNLOADS=never UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1
RUN /opt/uv/bin/uv pip install -p /opt/tidegate/bin/python --require-hashes -r requirements/run.lock
COPY pyproject.toml README.md LICENSE ./
COPY keys/ keys/
COPY conflation/ conflation/
COPY app/ app/
COPY pipeline/ pipeline/
COPY pyspark_tidegate/ pyspark_tidegate/
COPY clients/ clients/
RUN /opt/uv/bin/uv pip install -p /opt/tidegate/bin/python --no-deps --no-build-isolation .

FROM python:3.13-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/tidegate tidegate \
    && mkdir -p /var/lib/tidegate/pipeline \
    && chown -R 10001:10001 /var/lib/tidegate
COPY --from=build /opt/tidegate /opt/tidegate
ENV PATH="/opt/tidegate/bin:${PATH}" PYTHONUNBUFFERED=1 PYSPARK_PYTHON=/opt/tidegate/bin/python
USER 10001:10001
WORKDIR /var/lib/tidegate
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=5 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
# Inside a container every address is one that others can reach; what is published stays on loopback.
ENV TIDEGATE_HOST=0.0.0.0 TIDEGATE_INSECURE=true
CMD ["tidegate", "serve"]
