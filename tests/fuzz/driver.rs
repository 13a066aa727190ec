//! Runs a target: its corpus first, then mutations until the time is up.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

/// Seconds for the mutations of a target, unless `FUZZ_SECONDS` says otherwise.
const SECONDS: u64 = 5;
/// Memory that the whole process may use, in kibibytes.
const MEMORY_MAX: u64 = 3 << 20;
/// Maximum number of attempts to make a finding smaller.
const SHRINKS: u32 = 300;
/// Time after which a finding is small enough.
const SHRINKING: Duration = Duration::from_secs(60);
/// Maximum number of mutations that are kept as seeds for others.
const POOL: usize = 256;

/// A part of the program that is fuzzed.
pub(crate) trait Target {
    /// The name of its corpus.
    const NAME: &str;
    /// Time that no input may take, on a busy machine.
    const SLOW: Duration = Duration::from_secs(60);

    /// Changes an input. `others` are further inputs, to take parts from.
    fn mutate(&self, input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8>;

    /// Handles an input.
    ///
    /// # Errors
    /// If a promise is broken. A panic is an error, too.
    fn run(&self, input: &[u8]) -> Result<(), String>;
}

/// Panics of all threads, with the names of the threads.
static PANICS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Threads that work for a target have names with this prefix, and its name after it.
pub(crate) const THREAD: &str = "fuzz-";

thread_local! {
    /// The target of this test, while it handles an input.
    static RUNNING: RefCell<Option<&'static str>> = const { RefCell::new(None) };
}

fn collect_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            let of_thread = thread.name().and_then(|name| name.strip_prefix(THREAD));
            match RUNNING.with_borrow(|running| *running).or(of_thread) {
                Some(target) => PANICS.lock().unwrap().push((target.to_owned(), info.to_string())),
                None => usual(info),
            }
        }));
    });
}

/// Replays the corpus of a target, then runs mutations of it and of the seeds.
pub(crate) fn fuzz<T: Target>(target: &T, mut pool: Vec<Vec<u8>>) {
    collect_panics();
    let corpus = corpus(T::NAME);
    for (path, input) in files(&corpus) {
        if let Err(problem) = attempt(target, &input) {
            panic!("{}: {problem}", path.display());
        }
        pool.push(input);
    }
    assert!(!pool.is_empty(), "{} has no inputs to begin with", T::NAME);
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let seconds = Duration::from_secs(number("FUZZ_SECONDS").unwrap_or(SECONDS));
    let seed = number("FUZZ_SEED").unwrap_or_else(|| rand::rng().next_u64());
    let mut random = SmallRng::seed_from_u64(seed);
    let (began, own, mut runs) = (Instant::now(), pool.len(), 0_u64);
    while began.elapsed() < seconds {
        let base = pool[random.random_range(0..pool.len())].clone();
        let mut input = target.mutate(&base, &pool, &mut random);
        while random.random_ratio(1, 3) {
            input = target.mutate(&input, &pool, &mut random);
        }
        if let Err(problem) = attempt(target, &input) {
            let (input, problem) = shrink(target, input, problem, &mut random);
            let path = keep(&corpus, &input);
            panic!("FUZZ_SEED={seed}, run {runs}: {problem}\nthe input is now {}", path.display());
        }
        runs += 1;
        // Some mutations of mutations reach further than those of recordings.
        if pool.len() < own + POOL {
            pool.push(input);
        } else if random.random_ratio(1, 50) {
            let old = own + random.random_range(0..POOL);
            pool[old] = input;
        }
    }
    println!("fuzz {}: {runs} runs from FUZZ_SEED={seed}, no finding", T::NAME);
}

/// Runs one input, and looks for panics, time and memory.
fn attempt<T: Target>(target: &T, input: &[u8]) -> Result<(), String> {
    // For inputs that end the whole process.
    let last = std::env::temp_dir().join(format!("yardmaster-fuzz-{}-{}", T::NAME, std::process::id()));
    std::fs::write(&last, input).unwrap();
    let began = Instant::now();
    RUNNING.set(Some(T::NAME));
    let result = catch_unwind(AssertUnwindSafe(|| target.run(input)));
    RUNNING.set(None);
    let took = began.elapsed();
    std::fs::remove_file(&last).unwrap();
    let mut panics = PANICS.lock().unwrap();
    let own = panics.extract_if(.., |(name, _)| name == T::NAME).map(|(_, panic)| panic);
    if let Some(panic) = own.last() {
        return Err(panic);
    }
    drop(panics);
    if took > T::SLOW {
        return Err(format!("took {took:?} for {} bytes", input.len()));
    }
    let memory = memory();
    if memory > MEMORY_MAX {
        return Err(format!("the process uses {memory} KiB of memory"));
    }
    result.unwrap_or_else(|_| Err("panicked".into()))
}

/// The memory of this process in kibibytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Makes a finding smaller, as long as it stays one.
fn shrink<T: Target>(
    target: &T,
    mut input: Vec<u8>,
    mut problem: String,
    random: &mut SmallRng,
) -> (Vec<u8>, String) {
    let began = Instant::now();
    for _ in (0..SHRINKS).take_while(|_| began.elapsed() < SHRINKING) {
        let smaller = target.mutate(&input, &[], random);
        if smaller.len() < input.len()
            && let Err(same) = attempt(target, &smaller)
        {
            (input, problem) = (smaller, same);
        }
    }
    (input, problem)
}

/// Writes a finding to the corpus.
fn keep(corpus: &Path, input: &[u8]) -> PathBuf {
    std::fs::create_dir_all(corpus).unwrap();
    let name = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let path = corpus.join(format!("{name:016x}"));
    std::fs::write(&path, input).unwrap();
    path
}

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz").join(name)
}

fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}
