# The node agent and the command line: the base install, without Django.
# Build from the root of the repository: docker build -f docker/agent.Dockerfile -t mitosis-agent .
FROM python:3.11-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/mitosis
COPY requirements/agent.txt requirements/agent.txt
RUN /opt/mitosis/bin/pip install --require-hashes -r requirements/agent.txt
COPY . .
RUN /opt/mitosis/bin/pip install --no-deps .

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="mitosis-agent" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 mitosis \
 && useradd --uid 10001 --gid mitosis --no-create-home --home-dir /var/lib/mitosis-agent mitosis \
 && install -d -o mitosis -g mitosis -m 0700 /var/lib/mitosis-agent
COPY --from=build /opt/mitosis /opt/mitosis
ENV PATH=/opt/mitosis/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MITO_AGENT_DATA_DIR=/var/lib/mitosis-agent \
    MITO_AGENT_LOG_FORMAT=json
# Unprivileged by default: commands run as the agent's own user. For limits and one user per slot the
# container runs as root with a writable cgroup (docker/kubernetes/agent-daemonset.yaml).
USER 10001:10001
WORKDIR /var/lib/mitosis-agent
STOPSIGNAL SIGTERM
ENTRYPOINT ["nodeagent"]
CMD ["run"]
