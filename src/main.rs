//! The `yardmaster` command.

/// Objects are trees of many small values, made and dropped with every request: with the C library's allocator that
/// takes twice as long.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    yardmaster::cli::main()
}
