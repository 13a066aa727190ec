//! The `yardmaster` command.

/// Objects are trees of many small values, made and dropped with every request: with the C library's allocator that
/// takes twice as long.
#[cfg(not(feature = "heap-profile"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(feature = "heap-profile")]
#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

fn main() -> std::process::ExitCode {
    #[cfg(feature = "heap-profile")]
    let _profile = dhat::Profiler::new_heap();
    yardmaster::cli::main()
}
