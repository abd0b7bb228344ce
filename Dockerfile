# Two images: `--target gateway`, which is the default, and `--target spark`, which has Java besides, for
# the Spark master, its workers and the pipeline. Spark's executors import the packages of the driver.

FROM python:3.13-slim-bookworm AS source
WORKDIR /build
COPY requirements/ requirements/
RUN python -m venv /opt/uv \
    && /opt/uv/bin/pip install --no-cache-dir --require-hashes -r requirements/uv.lock \
    && python -m venv /opt/tidegate
ENV UV_PYTHON_DOWNLOADS=never UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1
RUN /opt/uv/bin/uv pip install -p /opt/tidegate/bin/python --require-hashes -r requirements/base.lock
COPY pyproject.toml README.md LICENSE ./
COPY keys/ keys/
COPY conflation/ conflation/
COPY app/ app/
COPY pipeline/ pipeline/
COPY pyspark_tidegate/ pyspark_tidegate/
COPY clients/ clients/
COPY tidegate/ tidegate/
RUN /opt/uv/bin/uv pip install -p /opt/tidegate/bin/python --no-deps --no-build-isolation .

FROM source AS spark-source
RUN /opt/uv/bin/uv pip install -p /opt/tidegate/bin/python --require-hashes -r requirements/run.lock

FROM python:3.13-slim-bookworm AS system
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/tidegate tidegate \
    && mkdir -p /var/lib/tidegate/pipeline \
    && chown -R 10001:10001 /var/lib/tidegate
ENV PATH="/opt/tidegate/bin:${PATH}" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/tidegate

FROM system AS spark
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=spark-source /opt/tidegate /opt/tidegate
ENV PYSPARK_PYTHON=/opt/tidegate/bin/python
USER 10001:10001
CMD ["tidegate", "pipeline", "--help"]

FROM system AS gateway
COPY --from=source /opt/tidegate /opt/tidegate
COPY deploy/ready.py /opt/tidegate/ready.py
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=5 \
    CMD ["python", "/opt/tidegate/ready.py"]
# Inside a container every address is one that others can reach; what is published stays on loopback.
ENV TIDEGATE_HOST=0.0.0.0 TIDEGATE_INSECURE=true
# The one place that is written: everything else may be read-only.
VOLUME /var/lib/tidegate
CMD ["tidegate", "serve"]
