# The coordinator: web, Celery worker, beat and bootstrap are the same image with another command.
# Build from the root of the repository: docker build -f docker/coordinator.Dockerfile -t mitosis-coordinator .
FROM python:3.11-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/mitosis
# The locked packages first: they change less often than the code.
COPY requirements/server.txt requirements/server.txt
RUN /opt/mitosis/bin/pip install --require-hashes -r requirements/server.txt
COPY . .
RUN /opt/mitosis/bin/pip install --no-deps .

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="mitosis-coordinator" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 mitosis \
 && useradd --uid 10001 --gid mitosis --no-create-home --home-dir /var/lib/mitosis mitosis \
 && install -d -o mitosis -g mitosis -m 0700 /var/lib/mitosis /var/lib/mitosis/keys /run/mitosis
COPY --from=build /opt/mitosis /opt/mitosis
ENV PATH=/opt/mitosis/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DJANGO_SETTINGS_MODULE=mitosis_site.settings.prod \
    MITOSIS_KEYS_DIR=/var/lib/mitosis/keys
USER 10001:10001
WORKDIR /var/lib/mitosis
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
# The flags are those of the embedded stack (mitosis_stack/coordinator.py); a test compares them.
CMD ["uvicorn", "mitosis_site.asgi:application", "--host", "0.0.0.0", "--port", "8000", \
     "--loop", "uvloop", "--http", "httptools", "--ws", "websockets-sansio", \
     "--lifespan", "on", "--no-access-log", "--no-server-header", \
     "--ws-max-size", "262144", "--ws-per-message-deflate", "false", \
     "--timeout-keep-alive", "120", "--timeout-graceful-shutdown", "8"]
