use yardmaster_simulation::{World, known::{self, Defect}};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (from, count): (u64, u64) = (args[1].parse().unwrap(), args[2].parse().unwrap());
    std::panic::set_hook(Box::new(|i| {
        if std::env::var("PANICS").is_ok() {
            eprintln!("{i}")
        }
    }));
    for seed in from..from + count {
        let began = std::time::Instant::now();
        let with: Vec<Defect> = args[3..].iter().flat_map(|n| Defect::ALL.into_iter().filter(move |d| n == "all" || d.name() == n)).collect();
        let p = match (with.len(), std::env::var("PROVOKE")) { (1, Ok(_)) => with[0].provoke(seed), _ => known::plan(seed, &with) };
        let steps: Vec<String> = p.steps.iter().map(|s| format!("{} {}", s.at, s.act)).collect();
        let o = World::new(p, count == 1).unwrap().run();
        if count == 1 {
            print!("{}", o.log.text());
            println!("{steps:#?}");
        }
        println!(
            "{seed}: {:?} virtual {} requests {} pods {} lines {} digest {:x} {}",
            began.elapsed(),
            o.time,
            o.requests,
            o.pods,
            o.log.lines(),
            o.log.digest(),
            o.violation.map_or("ok".into(), |v| v.to_string())
        );
    }
}
