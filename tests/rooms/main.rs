//! The rooms of the source tree and what each must not know, read from the imports: see `src/lib.rs` and
//! `ARCHITECTURE.md`.
#![allow(clippy::unwrap_used, missing_docs)]

mod imports;

use std::collections::BTreeSet;
use std::path::Path;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use crate::imports::{Import, Module, read};

/// A room, and everything that its files may import besides `std` and its own modules.
struct Room {
    name: &'static str,
    rooms: &'static [&'static str],
    crates: &'static [&'static str],
}

/// The rooms of `src`. The command line is missing: it may know everything.
const ROOMS: [Room; 6] = [
    Room {
        name: "job",
        rooms: &[],
        crates: &[
            "bytes",
            "fnv",
            "foldhash",
            "hashbrown",
            "humantime",
            "jiff",
            "serde",
            "serde_json",
            "slab",
            "thiserror",
            "uuid",
        ],
    },
    Room {
        name: "sharding",
        rooms: &[],
        crates: &["fnv", "jiff", "k8s_openapi", "serde", "serde_json", "thiserror"],
    },
    Room {
        name: "cluster",
        rooms: &["job", "net", "telemetry"],
        crates: &[
            "axum",
            "backon",
            "base64",
            "bytes",
            "foldhash",
            "form_urlencoded",
            "futures",
            "governor",
            "http",
            "http_body_util",
            "hyper",
            "hyper_rustls",
            "hyper_util",
            "jiff",
            "k8s_openapi",
            "kube",
            "memchr",
            "percent_encoding",
            "prometheus_client",
            "rand",
            "rustix",
            "rustls",
            "secrecy",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tokio_util",
            "tower",
            "tracing",
            "yardmaster_manifest",
        ],
    },
    Room {
        name: "actors",
        rooms: &["job", "sharding", "cluster", "telemetry"],
        crates: &[
            "actix",
            "backon",
            "bytes",
            "dashmap",
            "futures",
            "jiff",
            "k8s_openapi",
            "kube",
            "kube_leader_election",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tokio_util",
            "tracing",
            "uuid",
        ],
    },
    Room {
        name: "net",
        rooms: &[],
        crates: &["futures", "http", "hyper_rustls", "hyper_util", "rustls", "thiserror", "tokio", "tower"],
    },
    Room {
        name: "telemetry",
        rooms: &["net"],
        crates: &[
            "axum",
            "base64",
            "bytes",
            "fnv",
            "futures",
            "http",
            "http_body_util",
            "hyper",
            "hyper_rustls",
            "hyper_util",
            "jiff",
            "opentelemetry",
            "opentelemetry_http",
            "opentelemetry_otlp",
            "opentelemetry_sdk",
            "opentelemetry_semantic_conventions",
            "procfs",
            "prometheus_client",
            "ring",
            "rustls",
            "serde",
            "serde_json",
            "slab",
            "socket2",
            "subtle",
            "thiserror",
            "tokio",
            "tokio_rustls",
            "tokio_util",
            "tonic",
            "tower",
            "tracing",
            "tracing_opentelemetry",
            "tracing_subscriber",
            "uuid",
        ],
    },
];

/// Parts of `std` that the pure rooms must not touch: clocks, I/O, threads.
const IMPURE: [&str; 8] =
    ["env", "fs", "io", "net", "process", "thread", "time::Instant", "time::SystemTime"];
/// The rooms that get time as a parameter and do no I/O.
const PURE: [&str; 2] = ["job", "sharding"];

/// The marks of broken variants, which every room may have: they compile to nothing.
const MUTANTS: &str = "mutants";

/// Modules of one room that may import each other, and why.
const CYCLES: [(&str, &[&str], &str); 1] = [(
    "embedded",
    &["admission", "verbs"],
    "admitting a pod charges its quota, which is a status update, and every write is admitted",
)];

fn source(of: &str) -> Vec<Module> {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(of))
}

#[test]
fn no_room_imports_what_it_must_not_know() {
    let mut violations = BTreeSet::new();
    for module in source("src") {
        let Some(room) = ROOMS.iter().find(|room| module.path.first().is_some_and(|name| name == room.name))
        else {
            continue;
        };
        for import in &module.imports {
            let allowed = match import {
                Import::Own(path) => path
                    .first()
                    .is_none_or(|to| to == room.name || to == MUTANTS || room.rooms.contains(&&**to)),
                Import::Std(path) => {
                    !PURE.contains(&room.name) || !IMPURE.iter().any(|part| path.join("::").starts_with(part))
                }
                Import::Crate(name) => room.crates.contains(&&**name),
            };
            if !allowed {
                violations.insert(format!("{} must not know {import}", module.path.join("::")));
            }
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn only_the_command_line_knows_the_embedded_cluster_and_that_does_not_know_the_product() {
    let knows = |modules: &[Module], name: &str| -> BTreeSet<String> {
        let knows = |module: &&Module| module.imports.contains(&Import::Crate(name.into()));
        modules.iter().filter(knows).filter_map(|module| module.path.first().cloned()).collect()
    };
    assert_eq!(knows(&source("src"), "yardmaster_embedded"), BTreeSet::from(["cli".to_owned()]));
    assert_eq!(knows(&source("embedded/src"), "yardmaster"), BTreeSet::new());
    for other in ["yardmaster", "yardmaster_embedded", "kube", "k8s_openapi", "tokio"] {
        assert_eq!(knows(&source("manifest/src"), other), BTreeSet::new());
    }
}

/// The simulation puts bugs into controllers and holds them in its hand: no other part may.
#[test]
fn only_the_command_that_runs_it_knows_the_simulation() {
    let knows = |of: &str, name: &str| -> Vec<String> {
        let modules = source(of).into_iter();
        let knows = modules.filter(|module| module.imports.contains(&Import::Crate(name.into())));
        knows.map(|module| module.path.join("::")).collect()
    };
    assert_eq!(knows("load-tests/src", "yardmaster_simulation"), ["simulate"]);
    assert_eq!(knows("src", "yardmaster_simulation"), Vec::<String>::new());
    assert_eq!(knows("embedded/src", "yardmaster_simulation"), Vec::<String>::new());
}

/// A file and the files in the folder of its name are one concept, and may know each other.
#[test]
fn the_modules_of_a_room_import_each_other_in_one_direction() {
    let rooms = ["job", "sharding", "cluster", "cluster::wire", "actors", "telemetry", "net", "cli"];
    let folders =
        ["jobs", "known_jobs", "leases", "messages", "orphans", "pacing", "pages", "pods", "shards"];
    let rooms = rooms.map(str::to_owned).into_iter().chain(folders.map(|folder| format!("actors::{folder}")));
    let mut cycles = Vec::new();
    for room in rooms {
        cycles.extend(cycles_in(&source("src"), &room));
    }
    cycles.extend(cycles_in(&source("embedded/src"), ""));
    cycles.extend(cycles_in(&source("manifest/src"), ""));
    println!("{} cycles", cycles.len());
    let known: Vec<Vec<String>> = CYCLES
        .iter()
        .map(|(_, modules, _)| modules.iter().map(|name| (*name).to_owned()).collect())
        .collect();
    cycles.retain(|cycle| !known.contains(cycle));
    assert!(cycles.is_empty(), "{cycles:#?}");
}

/// Groups of modules directly below a room that import each other in circles.
fn cycles_in(modules: &[Module], room: &str) -> Vec<Vec<String>> {
    let room: Vec<&str> = room.split("::").filter(|part| !part.is_empty()).collect();
    let below = |path: &[String]| -> Option<String> {
        let inside = path.len() > room.len() && path.iter().zip(&room).all(|(part, room)| part == room);
        inside.then(|| path.get(room.len()).cloned()).flatten()
    };
    let names: BTreeSet<String> = modules.iter().filter_map(|module| below(&module.path)).collect();
    let mut graph: DiGraphMap<&str, ()> = DiGraphMap::new();
    for module in modules {
        let Some(from) = below(&module.path) else { continue };
        for import in &module.imports {
            if let Import::Own(path) = import
                && let Some(to) = below(path)
                && let (Some(from), Some(to)) = (names.get(&from), names.get(&to))
                && from != to
            {
                graph.add_edge(from, to, ());
            }
        }
    }
    let prefix = room.iter().map(|part| format!("{part}::")).collect::<String>();
    let mut cycles: Vec<Vec<String>> = tarjan_scc(&graph)
        .into_iter()
        .filter(|group| group.len() > 1)
        .map(|group| group.into_iter().map(|name| format!("{prefix}{name}")).collect())
        .collect();
    cycles.iter_mut().for_each(|cycle| cycle.sort());
    cycles.sort();
    cycles
}
