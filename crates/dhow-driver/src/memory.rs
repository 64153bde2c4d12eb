//! How the C library's allocator keeps memory. A daemon works in bursts on several threads, and by default each
//! thread's own heap stays as large as its largest burst was.

/// Bounds the heaps and gives large blocks back at once. To be called before the process has a second thread; a
/// C library that knows none of it goes on as it is.
pub fn keep_small() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const HEAPS_MAX: i32 = 2;
        const LARGE_BLOCK_BYTES: i32 = 128 * 1024;
        // SAFETY: the calls only set two numbers of the allocator, and no other thread is there to read them.
        unsafe {
            nix::libc::mallopt(nix::libc::M_ARENA_MAX, HEAPS_MAX);
            nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
        }
    }
}
