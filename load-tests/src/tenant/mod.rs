//! `tenant`: attacks by a user with all rights on the Jobs and pods of one namespace, and their effect on the Jobs of
//! another one.
//!
//! Each of the [`attacks`] is a [`round`] of its own, with new replicas in a new [`yard`]. Before, during and after it
//! the [`victim`] runs Jobs, and [`health`] watches the replicas. [`verdict`] has the rules.

mod attacks;
mod health;
mod page;
mod round;
mod user;
mod verdict;
mod victim;
mod yard;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum as _};
use serde::Serialize;

use self::attacks::Attack;
use self::round::Round;
use self::user::{Scale, USER};
use self::verdict::{Outcome, Rules};
use crate::ground::{Ground, Storage};
use crate::report::{Env, write_text};
use crate::stage::{BUILT_IN, CommonArgs};

/// Leases that are quick to change hands, for the small scale.
const QUICK: [&str; 6] = ["--lease-duration", "3s", "--renew-deadline", "2s", "--retry-period", "500ms"];

/// Flags of `tenant`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TenantArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Attacks, one after the other: all, or names.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "all", value_parser = parse_attack)]
    attack: Vec<Choice>,
    /// How much of each attack is played.
    #[arg(long, value_name = "SCALE", default_value = "full")]
    scale: Scale,
    /// Jobs of the victim in each phase of an attack [default: 20; small: 3].
    #[arg(long, value_name = "J")]
    jobs: Option<usize>,
    /// Longest time that is waited for a Job of the victim [default: 2m; small: 15s].
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    patience: Option<Duration>,
    /// Longest time until everything is as before once the objects of an attack are gone.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = humantime::parse_duration)]
    recovery: Duration,
    /// Differences between latencies that are noise of this machine.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = humantime::parse_duration)]
    noise: Duration,
    /// Most memory that a replica may use, in MiB [default: 512, the limit of the chart; small: 192].
    #[arg(long, value_name = "MIB")]
    memory_limit: Option<u64>,
    /// Most requests of all replicas together in a second, beside 10 for each write of the tenant.
    #[arg(long, value_name = "N", default_value_t = 15)]
    requests_limit: u64,
}

/// The value of `--attack`.
#[derive(Clone, Copy, Debug)]
enum Choice {
    All,
    One(Attack),
}

fn parse_attack(name: &str) -> Result<Choice, String> {
    match name {
        "all" => Ok(Choice::All),
        _ => Attack::from_str(name, false).map(Choice::One).map_err(|_| {
            let names: Vec<_> = Attack::value_variants().iter().map(|attack| attack.name()).collect();
            format!("all, or some of {}", names.join(", "))
        }),
    }
}

/// The report.
#[derive(Clone, Debug, Serialize)]
struct Report {
    env: Env,
    rules: Rules,
    /// Whether the API server limited the tenant to its rights.
    limited_rights: bool,
    attacks: Vec<Outcome>,
}

impl TenantArgs {
    fn rules(&self) -> Rules {
        Rules {
            scale: self.scale,
            jobs: self.jobs.unwrap_or(self.scale.of(3, 20)).max(1),
            patience: self.patience.unwrap_or(Duration::from_secs(self.scale.of(15, 120) as u64)),
            recovery: self.recovery,
            noise: self.noise,
            memory_mib: self.memory_limit.unwrap_or(self.scale.of(192, 512) as u64),
            requests_per_s: self.requests_limit,
        }
    }

    fn attacks(&self) -> Vec<Attack> {
        let chosen = |choice: &Choice| match choice {
            Choice::All => Attack::value_variants().to_vec(),
            Choice::One(attack) => vec![*attack],
        };
        self.attack.iter().flat_map(chosen).collect()
    }

    /// The flags of all commands, with those that follow from the scale.
    fn common(&self) -> CommonArgs {
        let mut common = self.common.clone();
        common.replicas.get_or_insert(2);
        if self.scale == Scale::Small {
            common.controller_flag.splice(0..0, QUICK.map(str::to_owned));
        }
        common
    }

    /// Plays the attacks, prints a line for each, and writes the report.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let (common, rules) = (self.common(), self.rules());
        ensure!(
            common.replicas() > 0 || (common.kubeconfig.is_some() && common.managed_by().is_none()),
            "without replicas, another controller is attacked: --kubeconfig FILE --controller-name {BUILT_IN}"
        );
        let mut ground =
            Ground::prepare_for(common.kubeconfig.as_deref(), Storage::Memory, Some(USER)).await?;
        let limited_rights = round::has_limited_rights(&ground).await?;
        if !limited_rights {
            eprintln!("the API server knows no users: the tenant has all rights");
        }
        let server = common.kubeconfig.as_ref().map_or("embedded".into(), |file| file.display().to_string());
        let hand_over = round::hand_over_without_attack(&mut ground, &common, &rules).await?;
        let mut report = Report { env: Env::here(server), rules, limited_rights, attacks: Vec::new() };
        for (number, attack) in self.attacks().into_iter().enumerate() {
            let played = Round::play(&mut ground, &common, &rules, number + 1, attack, hand_over).await;
            ground.check()?;
            let outcome = played.unwrap_or_else(|error| Outcome::unfinished(attack, &error));
            println!("{}", outcome.line());
            report.attacks.push(outcome);
        }
        ground.end().await?;
        if let Some(file) = &common.report {
            report.write(file)?;
        }
        let broken = report.attacks.iter().filter(|outcome| !outcome.broken.is_empty()).count();
        let skipped = report.attacks.iter().filter(|outcome| outcome.skipped.is_some()).count();
        println!("attacks {}: broken {broken}, skipped {skipped}", report.attacks.len());
        Ok(if report.is_held() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Report {
    /// Whether all attacks that were played were held off. If none was played, that is not known.
    fn is_held(&self) -> bool {
        self.attacks.iter().all(|outcome| outcome.broken.is_empty())
            && self.attacks.iter().any(|outcome| outcome.skipped.is_none())
    }

    /// Writes FILE.json, and a page beside it.
    fn write(&self, file: &Path) -> Result<()> {
        write_text(file, &(serde_json::to_string_pretty(self)? + "\n"))?;
        write_text(&file.with_extension("html"), &self.page()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_played_was_held_off() {
        let held = Outcome::default();
        let broken = Outcome { broken: vec!["a".into()], ..Outcome::default() };
        let skipped = Outcome { skipped: Some("none".into()), ..Outcome::default() };
        let rules = Rules {
            scale: Scale::Small,
            jobs: 1,
            patience: Duration::ZERO,
            recovery: Duration::ZERO,
            noise: Duration::ZERO,
            memory_mib: 1,
            requests_per_s: 1,
        };
        let report =
            Report { env: Env::here(String::new()), rules, limited_rights: true, attacks: Vec::new() };
        for (attacks, is_held) in [
            (vec![], false),
            (vec![skipped.clone()], false),
            (vec![skipped.clone(), held.clone()], true),
            (vec![held.clone(), broken], false),
        ] {
            assert_eq!(Report { attacks, ..report.clone() }.is_held(), is_held);
        }
    }
}
