# The controller's image: one binary, no shell, not root.
#
#   docker build -t yardmaster .
#   docker run --rm yardmaster --help

FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --no-default-features --locked --package yardmaster --bin yardmaster \
    && strip --strip-debug target/dist/yardmaster

# glibc, and the certificates that TLS needs; nothing else.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="Yardmaster" \
      org.opencontainers.image.description="A Kubernetes Job controller for large HPC and ML clusters" \
      org.opencontainers.image.source="https://github.com/yardmaster-dev/yardmaster" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /src/target/dist/yardmaster /usr/local/bin/yardmaster
# The number of "nonroot": with a name, a cluster's runAsNonRoot check could not tell.
USER 65532:65532
# Metrics and health.
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/yardmaster"]
CMD ["controller"]
