//! Which modules a file names, read from its syntax tree. Tests inside the file do not count.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// A source file.
pub(crate) struct Module {
    /// Its path from the crate's root; empty for the root.
    pub(crate) path: Vec<String>,
    pub(crate) imports: BTreeSet<Import>,
}

/// Something that a file names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Import {
    /// A path within the crate, from its root.
    Own(Vec<String>),
    /// A path within the standard library.
    Std(Vec<String>),
    /// Another crate.
    Crate(String),
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(path) => write!(f, "crate::{}", path.join("::")),
            Self::Std(path) => write!(f, "std::{}", path.join("::")),
            Self::Crate(name) => f.write_str(name),
        }
    }
}

/// All files below a crate's `src`, except tests.
pub(crate) fn read(src: &Path) -> Vec<Module> {
    let mut files = Vec::new();
    collect(src, &mut files);
    files.iter().map(|file| module(src, file)).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests" || name == "recordings");
        if is_test {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn module(src: &Path, file: &Path) -> Module {
    let mut path: Vec<String> = file
        .strip_prefix(src)
        .unwrap()
        .with_extension("")
        .iter()
        .map(|part| part.to_str().unwrap().to_owned())
        .collect();
    if path.last().is_some_and(|name| ["mod", "lib", "main"].contains(&&**name)) {
        path.pop();
    }
    let syntax = syn::parse_file(&std::fs::read_to_string(file).unwrap()).unwrap();
    let declared = syntax.items.iter().filter_map(|item| match item {
        Item::Mod(module) => Some(module.ident.to_string()),
        _ => None,
    });
    let mut names = Names { path: path.clone(), children: declared.collect(), imports: BTreeSet::new() };
    names.visit_file(&syntax);
    Module { path, imports: names.imports }
}

struct Names {
    path: Vec<String>,
    /// The modules that the file declares: paths that begin with them need no `self`.
    children: BTreeSet<String>,
    imports: BTreeSet<Import>,
}

impl Names {
    fn note(&mut self, segments: &[String]) {
        let Some((first, rest)) = segments.split_first() else { return };
        let own = |base: &[String], rest: &[String]| Import::Own([base, rest].concat());
        let import = match &**first {
            "crate" => own(&[], rest),
            "self" => own(&self.path, rest),
            "super" => {
                let ups = segments.iter().take_while(|part| *part == "super").count();
                let base = self.path.len().saturating_sub(ups);
                own(&self.path[..base], &segments[ups..])
            }
            "std" | "core" | "alloc" => Import::Std(rest.to_vec()),
            name if self.children.contains(name) => own(&self.path, segments),
            // A type of the file itself, such as an enum whose variants are imported.
            name if name.starts_with(char::is_uppercase) => return,
            name => Import::Crate(name.to_owned()),
        };
        self.imports.insert(import);
    }

    fn note_tree(&mut self, prefix: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.note_tree(prefix, &path.tree);
                prefix.pop();
            }
            UseTree::Name(name) => self.note(&[&**prefix, &[name.ident.to_string()]].concat()),
            UseTree::Rename(name) => self.note(&[&**prefix, &[name.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.note(prefix),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.note_tree(prefix, tree)),
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|name| name == "test")
    })
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(module) if is_test(&module.attrs) => {}
            Item::Use(import) if is_test(&import.attrs) => {}
            Item::Use(import) => self.note_tree(&mut Vec::new(), &import.tree),
            item => visit::visit_item(self, item),
        }
    }

    /// Paths in types and expressions that begin with `crate`, `self` or `super`. Other paths begin with a
    /// name that a `use` brings in, or with a crate. The lists of rooms miss the latter: this project imports
    /// what it uses.
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let first = segments.first().map(String::as_str);
        if segments.len() > 1
            && matches!(first, Some("crate" | "self" | "super" | "std" | "tokio" | "kube" | "actix"))
        {
            self.note(&segments);
        }
        visit::visit_path(self, path);
    }
}
