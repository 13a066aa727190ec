# The controller's image: one static program, no shell, no libraries, not root.
#
#   docker build -t yardmaster .
#   docker run --rm yardmaster --help
#
# A release is for both architectures, and names the images that it is made from by digest (`docker buildx imagetools inspect
# rust:1.95-bookworm` prints the one that the tag has). It has a record of how it was built, and a bill of materials (SBOM)
# in CycloneDX, which is written to a folder:
#
#   pins="--build-arg RUST_IMAGE=docker.io/library/rust@sha256:... --build-arg BASE_IMAGE=gcr.io/distroless/static-debian12@sha256:..."
#   docker buildx build --platform linux/amd64,linux/arm64 $pins --sbom=true --provenance=mode=max \
#     --build-arg VERSION=0.1.0 --build-arg REVISION=$(git rev-parse HEAD) \
#     --build-arg CREATED=$(date -u +%Y-%m-%dT%H:%M:%SZ) -t REGISTRY/yardmaster:0.1.0 --push .
#   docker buildx build --platform linux/amd64,linux/arm64 $pins --target sbom --output type=local,dest=release .
#
# Each architecture is built by a builder of its own, so that no C cross compiler is needed. Emulated, the thorough
# optimisation takes hours; give buildx a node of each architecture (docker buildx create --append).
#
# `.ci/image --profile dist` assembles the same image without Docker and without base images, on the architecture of the
# machine, and checks it: files, user, labels, size, start, bill of materials.
#
# Without access to the base image, --build-arg BASE_IMAGE=scratch does as well; only traces over TLS need the
# certificates that the base image has.
ARG RUST_IMAGE=docker.io/library/rust:1.95-bookworm
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM ${RUST_IMAGE} AS build
# The C compiler for the allocator and the cryptography, against a libc that can be linked statically; and what lists the
# crates.
RUN apt-get update \
    && apt-get install -y --no-install-recommends musl-tools=1.2.3-1 python3=3.11.2-1+b1 \
    && rm -rf /var/lib/apt/lists/* \
    && rustup target add "$(uname -m)-unknown-linux-musl" \
    && cargo install --locked cargo-auditable@0.7.7 cargo-cyclonedx@0.5.9
WORKDIR /src
COPY . .
# Without the embedded cluster: nothing in a real cluster uses it.
RUN .ci/static-binary dist /

FROM scratch AS sbom
COPY --from=build /out/yardmaster.cdx.json /

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
