# The daemon, run as an unprivileged user and configured by the environment or /etc/dataapi/dataapi.ini.
#
#   docker build -t dataapi .
#   docker run -p 8000:8000 -e DATAAPI_PROJECT_DB_URI=postgresql://… -e DATAAPI_PROJECT_JWT_SECRET=… dataapi
#
# "make release" sets the labels, and BASE to an image with a digest (CONTRIBUTING.md, Release).
ARG BASE=python:3.14-slim-trixie

FROM ${BASE} AS build
WORKDIR /source
COPY requirements.lock ./
RUN python -m venv /opt/dataapi \
    && /opt/dataapi/bin/pip install --no-cache-dir --no-compile --require-hashes -r requirements.lock
COPY . .
# Remove what is not needed at run time: setuptools, pip and the libraries' tests. Compile bytecode, because the
# container may be read-only.
RUN /opt/dataapi/bin/pip install --no-cache-dir --no-compile --no-deps . \
    && /opt/dataapi/bin/pip uninstall --yes setuptools pip \
    && find /opt/dataapi/lib -depth -type d '(' -name test -o -name tests ')' -exec rm -r {} + \
    && python -m compileall -q --invalidation-mode unchecked-hash /opt/dataapi/lib

FROM ${BASE}
ARG VERSION
ARG REVISION
ARG SOURCE
LABEL org.opencontainers.image.title=dataapi \
    org.opencontainers.image.description="GraphQL and REST APIs and signed webhooks for PostgreSQL" \
    org.opencontainers.image.licenses=MIT \
    org.opencontainers.image.version=$VERSION \
    org.opencontainers.image.revision=$REVISION \
    org.opencontainers.image.source=$SOURCE
COPY --from=build /opt/dataapi /opt/dataapi
ENV PATH=/opt/dataapi/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PORT=8000
RUN install --directory --owner=10001 --group=10001 --mode=700 /etc/dataapi
# A numeric user, which platforms need to check that it is not root.
USER 10001:10001
WORKDIR /tmp
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["dataapi", "ready"]
# SIGTERM, as sent by "docker stop", lets requests in flight finish.
ENTRYPOINT ["twistd", "--nodaemon", "--pidfile=", "dataapi"]
