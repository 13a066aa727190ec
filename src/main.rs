//! The `yardmaster` command.

/// Objects are trees of many small values, allocated and freed with every request. The C library's allocator
/// takes twice as long for that.
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
