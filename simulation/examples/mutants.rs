//! Hunts mutants: `mutants FROM SEEDS [NAME...]`.
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use yardmaster::mutants::Mutant;
use yardmaster_simulation::mutants::hunt;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (from, seeds): (u64, u64) = (args[0].parse().unwrap(), args[1].parse().unwrap());
    std::panic::set_hook(Box::new(|_| {}));
    for mutant in Mutant::ALL {
        if args.len() > 2 && !args[2..].iter().any(|name| name == mutant.name()) {
            continue;
        }
        let began = Instant::now();
        let caught = hunt(*mutant, from, seeds).unwrap();
        let what = caught.map_or("SURVIVES".into(), |caught| format!("{} {}", caught.seed, caught.violation));
        println!("{} {what} [{:.1?}]", mutant.name(), began.elapsed());
    }
}
