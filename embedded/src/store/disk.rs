//! Objects in a directory: one redb database. After a crash at any moment it holds the state of some commit.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::{
    Builder, CommitError, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition, TableError, TransactionError,
};

use super::journal::{Content, Record, Sink};
use crate::data_dir::{self, ClaimError, LOCK_FILE};

/// The database.
const FILE: &str = "store.redb";
/// The database during its creation; renamed when complete.
const NEW_FILE: &str = "store.redb.new";
/// How every database begins.
const MAGIC: [u8; 9] = *b"redb\x1A\x0A\xA9\x0D\x0A";

/// Objects by plural and key: the revision, whether defaults are missing, the tail.
const OBJECTS: TableDefinition<'_, (&str, &str), (u64, bool, &[u8])> = TableDefinition::new("objects");
/// The revision of the newest write of each plural, deletions included.
const NEWEST: TableDefinition<'_, &str, u64> = TableDefinition::new("newest");
/// Facts about the whole database.
const FACTS: TableDefinition<'_, &str, u64> = TableDefinition::new("facts");
/// The fact that names the format of these tables.
const FORMAT: &str = "format";
/// The format that this code reads and writes.
const CURRENT_FORMAT: u64 = 1;

/// Memory for database pages, in bytes. Everything is read once and hardly anything after that.
const CACHE: usize = 32 << 20;

/// Why a data directory cannot be used. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The directory cannot be created or its files cannot be opened.
    #[error("{0}")]
    Unusable(#[source] std::io::Error),
    /// The directory is not ours to use.
    #[error(transparent)]
    NotOurs(ClaimError),
    /// Another process uses it.
    #[error("another process is using it")]
    InUse,
    /// Written by a version with another format.
    #[error("written by another version of yardmaster (format {0}, this one reads {CURRENT_FORMAT})")]
    OtherFormat(u64),
    /// The contents are not what was written.
    #[error("damaged, or no data directory: {}", one_line(.0))]
    Damaged(String),
    /// The operating system reported an error.
    #[error("{}", one_line(.0))]
    Failed(String),
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl From<ClaimError> for DataDirError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Unusable(error) => Self::Unusable(error),
            other => Self::NotOurs(other),
        }
    }
}

impl From<redb::Error> for DataDirError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::DatabaseAlreadyOpen => Self::InUse,
            redb::Error::Io(error) if error.kind() != std::io::ErrorKind::InvalidData => {
                Self::Unusable(error)
            }
            redb::Error::Io(error) => Self::Damaged(error.to_string()),
            redb::Error::Corrupted(_)
            | redb::Error::UpgradeRequired(_)
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TypeDefinitionChanged { .. }
            | redb::Error::TableDoesNotExist(_) => Self::Damaged(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Converts the errors of every step of a transaction.
macro_rules! through_redb {
    ($($step:ty),+) => {$(
        impl From<$step> for DataDirError {
            fn from(error: $step) -> Self {
                redb::Error::from(error).into()
            }
        }
    )+};
}
through_redb!(CommitError, DatabaseError, StorageError, TableError, TransactionError);

/// All contents of a directory.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// The revision of the newest write; 0 in a new directory.
    pub(crate) revision: u64,
    /// The newest write of each plural.
    pub(crate) newest: Vec<(String, u64)>,
    /// The objects, ordered by plural and key.
    pub(crate) objects: Vec<Kept>,
}

/// An object in the directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The plural of its table.
    pub(crate) plural: String,
    /// Its key there.
    pub(crate) key: String,
    /// The revision of its newest version.
    pub(crate) revision: u64,
    /// The content of that version.
    pub(crate) content: Content,
}

/// A data directory, used exclusively by this process.
pub(crate) struct Disk {
    database: Database,
    // Released after the database is closed, since fields drop in order.
    _lock: File,
}

impl Disk {
    /// Opens a directory and creates it if it does not exist. Reads all of it to detect damage.
    pub(crate) fn open(directory: &Path) -> Result<Self, DataDirError> {
        let file = directory.join(FILE);
        data_dir::claim(directory, |names| is_earlier(names, &file))?;
        let lock = lock(&directory.join(LOCK_FILE))?;
        for file in [FILE, LOCK_FILE] {
            data_dir::make_private(&directory.join(file)).map_err(DataDirError::Unusable)?;
        }
        if !file.try_exists().map_err(DataDirError::Unusable)? {
            create(directory, &file)?;
        }
        let database = builder().set_check_integrity_on_open(true).open(&file)?;
        Ok(Self { database, _lock: lock })
    }

    /// Reads everything.
    pub(crate) fn read(&self) -> Result<Contents, DataDirError> {
        let transaction = self.database.begin_read()?;
        let facts = transaction.open_table(FACTS)?;
        match facts.get(FORMAT)?.map(|format| format.value()) {
            Some(CURRENT_FORMAT) => {}
            other => return Err(DataDirError::OtherFormat(other.unwrap_or_default())),
        }
        let mut contents = Contents::default();
        for entry in transaction.open_table(NEWEST)?.iter()? {
            let (plural, revision) = entry?;
            contents.newest.push((plural.value().to_owned(), revision.value()));
        }
        contents.revision = contents.newest.iter().map(|(_, revision)| *revision).max().unwrap_or_default();
        for entry in transaction.open_table(OBJECTS)?.iter()? {
            let (place, version) = entry?;
            let (plural, key) = place.value();
            let (revision, lacks_defaults, tail) = version.value();
            let content = Content { tail: Bytes::copy_from_slice(tail), lacks_defaults };
            contents.objects.push(Kept { plural: plural.into(), key: key.into(), revision, content });
        }
        Ok(contents)
    }

    fn write(&mut self, records: &[Record]) -> Result<(), DataDirError> {
        let transaction = self.database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut newest = transaction.open_table(NEWEST)?;
            for record in records {
                let place = (record.plural, &*record.key);
                match &record.content {
                    Some(content) => {
                        let version = (record.revision, content.lacks_defaults, &*content.tail);
                        drop(objects.insert(place, version)?);
                    }
                    None => drop(objects.remove(place)?),
                }
                newest.insert(record.plural, record.revision)?;
            }
        }
        // Returns when everything is on disk.
        transaction.commit()?;
        Ok(())
    }
}

impl Sink for Disk {
    fn commit(&mut self, records: &[Record]) -> Result<(), String> {
        self.write(records).map_err(|problem| problem.to_string())
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

/// Whether a version without markers has left a database, or was interrupted when it created one.
fn is_earlier(names: &[OsString], file: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(file).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut start));
    (read.is_ok() && start == MAGIC) || names == [NEW_FILE]
}

fn lock(file: &PathBuf) -> Result<File, DataDirError> {
    let options = File::options().create(true).truncate(false).write(true).mode(0o600).open(file);
    let lock = options.map_err(DataDirError::Unusable)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(DataDirError::InUse),
        Err(TryLockError::Error(error)) => Err(DataDirError::Unusable(error)),
    }
}

/// Creates an empty database atomically: under its name it is either complete or absent.
fn create(directory: &Path, place: &Path) -> Result<(), DataDirError> {
    let new = directory.join(NEW_FILE);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(DataDirError::Unusable(error));
        }
        _ => {}
    }
    let file = File::options().create_new(true).write(true).mode(0o600).open(&new);
    drop(file.map_err(DataDirError::Unusable)?);
    let database = builder().create(&new)?;
    let transaction = database.begin_write()?;
    transaction.open_table(OBJECTS)?;
    transaction.open_table(NEWEST)?;
    transaction.open_table(FACTS)?.insert(FORMAT, CURRENT_FORMAT)?;
    transaction.commit()?;
    drop(database);
    let renamed = std::fs::rename(&new, place).and_then(|()| File::open(directory)?.sync_all());
    renamed.map_err(DataDirError::Unusable)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record(revision: u64, key: &str, tail: Option<&str>) -> Record {
        let content = tail.map(|tail| Content {
            tail: Bytes::copy_from_slice(tail.as_bytes()),
            lacks_defaults: revision.is_multiple_of(2),
        });
        Record { plural: "jobs", key: key.into(), revision, content }
    }

    fn kept(contents: &Contents) -> Vec<(&str, u64, bool)> {
        let objects = contents.objects.iter();
        objects.map(|kept| (kept.key.as_str(), kept.revision, kept.content.lacks_defaults)).collect()
    }

    #[test]
    fn committed_records_survive_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Disk::open(directory.path()).unwrap();
        assert_eq!(disk.read().unwrap().revision, 0);
        disk.commit(&[record(2, "n/a", Some("1")), record(3, "n/b", Some("2"))]).unwrap();
        disk.commit(&[record(4, "n/a", Some("3")), record(5, "n/c", Some("4"))]).unwrap();
        disk.commit(&[record(6, "n/b", None)]).unwrap();
        drop(disk);
        let contents = Disk::open(directory.path()).unwrap().read().unwrap();
        assert_eq!(kept(&contents), [("n/a", 4, true), ("n/c", 5, false)]);
        assert_eq!(contents.objects.first().unwrap().content.tail, "3");
        // The deletion counts: no revision may be assigned twice.
        assert_eq!((contents.revision, contents.newest), (6, vec![("jobs".to_owned(), 6)]));
    }

    #[test]
    fn a_directory_has_one_user_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::open(directory.path()).unwrap();
        assert!(matches!(Disk::open(directory.path()), Err(DataDirError::InUse)));
        drop(disk);
        assert!(Disk::open(directory.path()).is_ok());
    }

    #[test]
    fn a_new_directory_is_private_to_this_user() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("some/data");
        Disk::open(&data).unwrap();
        assert_eq!(data.metadata().unwrap().permissions().mode() & 0o077, 0);
    }

    #[test]
    fn a_directory_of_an_earlier_version_is_taken_and_made_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        Disk::open(directory.path()).unwrap().commit(&[record(2, "n/a", Some("1"))]).unwrap();
        std::fs::remove_file(directory.path().join("yardmaster-data-dir")).unwrap();
        for name in ["", FILE, LOCK_FILE] {
            let everybody = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(directory.path().join(name), everybody).unwrap();
        }
        assert_eq!(Disk::open(directory.path()).unwrap().read().unwrap().revision, 2);
        for name in ["", FILE, LOCK_FILE, "yardmaster-data-dir"] {
            let mode = directory.path().join(name).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{name}");
        }
    }

    #[test]
    fn an_interrupted_creation_is_repeated() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(NEW_FILE), "half").unwrap();
        std::fs::write(directory.path().join(LOCK_FILE), "").unwrap();
        assert_eq!(Disk::open(directory.path()).unwrap().read().unwrap().revision, 0);
        assert!(!directory.path().join(NEW_FILE).exists());
    }

    #[test]
    fn another_format_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::open(directory.path()).unwrap();
        let transaction = disk.database.begin_write().unwrap();
        transaction.open_table(FACTS).unwrap().insert(FORMAT, 7).unwrap();
        transaction.commit().unwrap();
        assert!(matches!(disk.read(), Err(DataDirError::OtherFormat(7))));
    }

    #[test]
    fn a_file_that_is_no_database_is_refused_in_one_line() {
        let (ours, foreign) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        drop(Disk::open(ours.path()).unwrap());
        for junk in ["junk".repeat(10_000), String::new()] {
            for (directory, is_ours) in [(&ours, true), (&foreign, false)] {
                std::fs::write(directory.path().join(FILE), &junk).unwrap();
                let Err(problem) = Disk::open(directory.path()) else { panic!("took {} bytes", junk.len()) };
                assert_eq!(matches!(problem, DataDirError::Damaged(_)), is_ours, "{problem:?}");
                assert_eq!(matches!(problem, DataDirError::NotOurs(_)), !is_ours, "{problem:?}");
                assert_eq!(problem.to_string().lines().count(), 1, "{problem}");
            }
        }
        let directory = ours;
        let file = directory.path().join(FILE);
        assert!(matches!(Disk::open(&file), Err(DataDirError::Unusable(_))), "a file is no directory");
    }

    #[test]
    fn damage_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Disk::open(directory.path()).unwrap();
        let tail = "x".repeat(2_000);
        let records: Vec<Record> =
            (1..=200).map(|number| record(number, &format!("n/{number}"), Some(&tail))).collect();
        disk.commit(&records).unwrap();
        drop(disk);
        let file = directory.path().join(FILE);
        let whole = std::fs::read(&file).unwrap();
        let at = whole.windows(64).position(|bytes| bytes.iter().all(|byte| *byte == b'x')).unwrap();
        let mut damaged = whole.clone();
        *damaged.get_mut(at + 1_000).unwrap() ^= 1;
        std::fs::write(&file, &damaged).unwrap();
        assert!(matches!(Disk::open(directory.path()), Err(DataDirError::Damaged(_))));
        std::fs::write(&file, whole.get(..whole.len() / 2).unwrap()).unwrap();
        assert!(matches!(Disk::open(directory.path()), Err(DataDirError::Damaged(_))), "cut off");
        std::fs::write(&file, &whole).unwrap();
        assert_eq!(Disk::open(directory.path()).unwrap().read().unwrap().objects.len(), 200);
    }
}
