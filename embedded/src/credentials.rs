//! The secrets that a server keeps in its data directory, so that a kubeconfig stays valid. Files have mode
//! 0600, in a folder with mode 0700. If other users could read or change a secret, it is replaced.

use std::fs::{DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::authentication::{Token, TokenError};
use crate::secret_file::{self, SecretFileError};

/// The folder in the data directory.
const FOLDER: &str = "credentials";
/// Its mode.
const PRIVATE: u32 = 0o700;

/// Why the credentials in a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", file.display())]
pub struct CredentialsError {
    /// The file or folder.
    pub file: PathBuf,
    /// Why it cannot be used.
    pub source: TokenError,
}

/// The folder with a server's credentials.
pub(crate) struct Credentials(PathBuf);

impl Credentials {
    /// The folder of a data directory, which is created if necessary.
    pub(crate) fn open(data_dir: &Path) -> Result<Self, CredentialsError> {
        let folder = data_dir.join(FOLDER);
        let created = DirBuilder::new().recursive(true).mode(PRIVATE).create(&folder);
        // An existing folder may be open to other users.
        match created.and_then(|()| std::fs::set_permissions(&folder, Permissions::from_mode(PRIVATE))) {
            Ok(()) => Ok(Self(folder)),
            Err(error) => Err(failed(folder, SecretFileError::Io(error))),
        }
    }

    /// The contents of a file; `None` if it does not exist, or if others could read or change it.
    pub(crate) fn read(&self, name: &str) -> Result<Option<String>, CredentialsError> {
        let file = self.0.join(name);
        match secret_file::read(&file) {
            Ok(text) => Ok(Some(text)),
            Err(SecretFileError::Io(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error @ (SecretFileError::Exposed(_) | SecretFileError::Foreign(_))) => {
                tracing::warn!(file = %file.display(), %error, "this secret is replaced");
                Ok(None)
            }
            Err(error) => Err(failed(file, error)),
        }
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), CredentialsError> {
        let file = self.0.join(name);
        secret_file::write(&file, text).map_err(|error| failed(file, SecretFileError::Io(error)))
    }

    /// The owner's token, which is made if there is none.
    pub(crate) fn token(&self) -> Result<Token, CredentialsError> {
        self.kept("token")
    }

    /// The secret by which the tokens of ServiceAccounts are signed, which is made if there is none.
    pub(crate) fn account_secret(&self) -> Result<Token, CredentialsError> {
        self.kept("service-account.key")
    }

    /// A random text that the server keeps in a file.
    fn kept(&self, name: &str) -> Result<Token, CredentialsError> {
        if let Some(text) = self.read(name)? {
            return Token::new(&text).map_err(|source| CredentialsError { file: self.0.join(name), source });
        }
        let token = Token::random();
        self.write(name, token.expose())?;
        Ok(token)
    }
}

fn failed(file: PathBuf, source: SecretFileError) -> CredentialsError {
    CredentialsError { file, source: source.into() }
}
