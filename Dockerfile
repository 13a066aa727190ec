# The controller's image: one static program, no shell, no libraries, not root.
#
#   docker build -t yardmaster .
#   docker run --rm yardmaster --help
#
# .github/workflows/release.yml makes the images of a release: for both architectures, each on a machine of its own, from base
# images by digest. Emulated, the thorough optimisation takes hours. The stage `program` has the program alone, beside its bill
# of materials (SBOM) in CycloneDX:
#
#   docker build --target program --output release .
#   docker build --target program --output release --build-arg PROGRAM=--with-cluster .     # with `run` and `cluster`
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
# Nothing in a real cluster uses the embedded one, so the image is without it.
ARG PROGRAM=
RUN .ci/static-binary dist / ${PROGRAM}

FROM scratch AS program
COPY --from=build /out/ /

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
