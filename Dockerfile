# The controller's image: one static program, no shell, no libraries, not root.
#
#   docker build -t yardmaster .
#   docker run --rm yardmaster --help
#
# For both architectures, with a bill of materials (SBOM) and a record of how it was built:
#
#   docker buildx build --platform linux/amd64,linux/arm64 --sbom=true --provenance=mode=max \
#     --build-arg VERSION=0.1.0 --build-arg REVISION=$(git rev-parse HEAD) \
#     --build-arg CREATED=$(date -u +%Y-%m-%dT%H:%M:%SZ) -t REGISTRY/yardmaster:0.1.0 --push .
#
# Each architecture is built by a builder of its own, so that no C cross compiler is needed. Emulated, the thorough
# optimisation takes hours; give buildx a node of each architecture (docker buildx create --append).
#
# The images below are named by tag. A release pins them by digest, which the tag had when the release was tried:
#
#   docker buildx imagetools inspect rust:1.95-bookworm                       # prints the digest
#   docker build --build-arg RUST_IMAGE=docker.io/library/rust@sha256:... --build-arg BASE_IMAGE=...@sha256:... .
#
# Without access to the base image, --build-arg BASE_IMAGE=scratch does as well; only traces over TLS need the
# certificates that the base image has.
ARG RUST_IMAGE=docker.io/library/rust:1.95-bookworm
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM ${RUST_IMAGE} AS build
# The C compiler for the allocator and the cryptography, against a libc that can be linked statically.
RUN apt-get update \
    && apt-get install -y --no-install-recommends musl-tools=1.2.3-1 \
    && rm -rf /var/lib/apt/lists/* \
    && rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
COPY . .
# Without the embedded cluster: nothing in a real cluster uses it.
RUN target="$(uname -m)-unknown-linux-musl" \
    && CARGO_PROFILE_DIST_STRIP=debuginfo cargo build --profile dist --no-default-features --locked \
        --package yardmaster --bin yardmaster --target "$target" \
    && install -D "target/$target/dist/yardmaster" /out/yardmaster

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="Yardmaster" \
      org.opencontainers.image.description="A Kubernetes Job controller for large HPC and ML clusters" \
      org.opencontainers.image.url="https://github.com/yardmaster-dev/yardmaster" \
      org.opencontainers.image.source="https://github.com/yardmaster-dev/yardmaster" \
      org.opencontainers.image.documentation="https://github.com/yardmaster-dev/yardmaster/blob/main/README.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=build /out/yardmaster /usr/local/bin/yardmaster
# The number of "nonroot": with a name, a cluster's runAsNonRoot check could not tell.
USER 65532:65532
# Metrics and health.
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/yardmaster"]
CMD ["controller"]
