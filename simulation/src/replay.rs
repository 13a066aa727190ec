//! The description of a world that can be run again: its seed, and the part of the plan.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::cut::{Cut, List, ListError};
use crate::known::{self, Defect};
use crate::mutants::{self, Mutant, NoSuchMutant};
use crate::plan::Plan;

/// A world that can be seen again. Its text is the flags of `simulate`: `--seed 17 --keep 0,3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The seed.
    pub seed: u64,
    /// The way in which its controllers are broken on purpose, if they are.
    pub mutant: Option<Mutant>,
    /// The known defect that its plan is made for, if it is made for one.
    pub provoke: Option<Defect>,
    /// The known defects that its plan may bring about.
    pub with: Vec<Defect>,
    /// The part of its plan that is left.
    pub cut: Cut,
}

/// Flags that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// There is no `--seed`.
    #[error("--seed is missing")]
    NoSeed,
    /// A flag that does not exist, or has no value.
    #[error("{0:?} is no flag with a value")]
    Flag(String),
    /// A value that is no number.
    #[error("{0:?} is no number")]
    Number(String),
    /// A defect that is not known.
    #[error("{0:?} is no known defect; these are: {names}", names = names())]
    Defect(String),
    /// A mutant that does not exist.
    #[error(transparent)]
    Mutant(#[from] NoSuchMutant),
    /// A list of steps or Jobs.
    #[error(transparent)]
    List(#[from] ListError),
}

fn names() -> String {
    List(Defect::ALL.map(Defect::name).to_vec()).to_string()
}

impl Replay {
    /// The whole world of a seed, with these known defects.
    pub fn whole(seed: u64, with: &[Defect]) -> Self {
        Self { seed, mutant: None, provoke: None, with: with.to_vec(), cut: Cut::default() }
    }

    /// The whole world of a seed, with a controller that is broken on purpose.
    pub fn of_mutant(mutant: Mutant, seed: u64) -> Self {
        Self { mutant: Some(mutant), ..Self::whole(seed, &[]) }
    }

    /// A world that is made for a known defect.
    pub fn provoking(defect: Defect, seed: u64) -> Self {
        Self { provoke: Some(defect), ..Self::whole(seed, &[]) }
    }

    /// Its plan.
    pub fn plan(&self) -> Plan {
        self.cut.of(&self.whole_plan())
    }

    /// The plan of which it takes a part.
    pub fn whole_plan(&self) -> Plan {
        match self.provoke {
            Some(defect) => defect.provoke(self.seed),
            None => known::plan(self.seed, &self.with),
        }
    }

    /// The command that shows it.
    pub fn command(&self) -> String {
        format!("cargo run --release -p load-tests -- simulate {self}")
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {}", self.seed)?;
        if let Some(mutant) = self.mutant {
            write!(f, " --mutant {}", mutant.name())?;
        }
        if let Some(defect) = self.provoke {
            write!(f, " --provoke {}", defect.name())?;
        }
        match self.with.as_slice() {
            [] => {}
            all if *all == Defect::ALL => write!(f, " --with all")?,
            some => write!(f, " --with {}", List(some.iter().map(|defect| defect.name()).collect()))?,
        }
        write!(f, "{}", self.cut)
    }
}

/// Reads a list of known defects, by name; `all` are all.
///
/// # Errors
/// With the first name that is none.
pub fn defects(text: &str) -> Result<Vec<Defect>, ReplayError> {
    if text == "all" {
        return Ok(Defect::ALL.to_vec());
    }
    text.split(',').map(defect).collect()
}

/// Reads the name of a known defect.
///
/// # Errors
/// When it is none.
pub fn defect(name: &str) -> Result<Defect, ReplayError> {
    let named = Defect::ALL.into_iter().find(|defect| defect.name() == name);
    named.ok_or_else(|| ReplayError::Defect(name.to_owned()))
}

impl FromStr for Replay {
    type Err = ReplayError;

    fn from_str(text: &str) -> Result<Self, ReplayError> {
        fn number<T: FromStr>(text: &str) -> Result<T, ReplayError> {
            text.parse().map_err(|_| ReplayError::Number(text.to_owned()))
        }
        let (mut seed, mut mutant, mut provoke, mut with, mut cut) =
            (None, None, None, Vec::new(), Cut::default());
        let mut words = text.split_whitespace();
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| ReplayError::Flag(flag.to_owned()))?;
            match flag {
                "--seed" => seed = Some(number(value)?),
                "--mutant" => mutant = Some(mutants::one(value)?),
                "--provoke" => provoke = Some(defect(value)?),
                "--with" => with = defects(value)?,
                "--keep" => cut.keep = Some(value.parse()?),
                "--jobs" => cut.jobs = Some(value.parse()?),
                "--replicas" => cut.replicas = Some(number(value)?),
                _ => return Err(ReplayError::Flag(flag.to_owned())),
            }
        }
        Ok(Self { seed: seed.ok_or(ReplayError::NoSeed)?, mutant, provoke, with, cut })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_replay_is_read_as_it_is_written() {
        for text in [
            "--seed 17",
            "--seed 0 --keep none",
            "--seed 3 --keep 0,2/8 --jobs 0,4 --replicas 2",
            "--seed 1 --jobs none",
            "--seed 1 --mutant FenceOff",
            "--seed 1 --with all",
        ] {
            assert_eq!(text.parse::<Replay>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = |text: &str| text.parse::<Replay>().unwrap_err();
        assert_eq!(error("--keep 1"), ReplayError::NoSeed);
        assert_eq!(error("--seed"), ReplayError::Flag("--seed".into()));
        assert_eq!(error("--seed x"), ReplayError::Number("x".into()));
        assert!(matches!(error("--seed 1 --jobs 1,"), ReplayError::List(_)));
        assert_eq!(error("--seed 1 --with x"), ReplayError::Defect("x".into()));
        assert!(matches!(error("--seed 1 --mutant all"), ReplayError::Mutant(_)));
        assert_eq!(error("--seed 1 --pods 1"), ReplayError::Flag("--pods".into()));
    }
}
